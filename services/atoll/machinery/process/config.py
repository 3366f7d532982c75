"""One frozen configuration Struct a process, from defaults, file, environment and flags, in this order.

A process declares a `ProcessConfig` whose fields are its settings; `load` reads them. Unknown keys in a file, unknown
`ATOLL_` variables and unknown flags refuse to start, so that a typing error is never a silent default. The help has two
screens: `--help` with the common settings, `--help-all` with every setting, by subject.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import yaml

from atoll.machinery.process import logging

PREFIX = "ATOLL_"
_HELP_WIDTH = 30
#: What stands for a value in the help, by the last word of the setting's name.
_METAVARS = {
    "file": "FILE",
    "kubeconfig": "FILE",
    "config": "FILE",
    "path": "FILE",
    "directory": "DIR",
    "url": "URL",
    "address": "IP",
    "cidr": "CIDR",
    "gates": "GATES",
    "workers": "N|auto",
}

#: Descriptions of settings: subject, then setting, then text.
Subjects = Mapping[str, Mapping[str, str]]


class ProcessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that every process has, and what a process declares for its help.

    `SUMMARY` is one sentence; `SUBJECTS` describes every setting; `COMMON` names those of the first help screen.
    """

    log_level: str = "info"
    log_format: str = logging.AUTO

    SUMMARY: ClassVar[str] = ""
    SUBJECTS: ClassVar[Subjects] = {}
    COMMON: ClassVar[Collection[str]] = ()

    def __post_init__(self) -> None:
        """Refuse values that do not exist. Raises ValueError."""
        logging.check(self.log_level, self.log_format)

    def check_complete(self) -> None:
        """Check what a process needs and `--print-config` does not. Raises ValueError."""


#: Descriptions of the settings that every process has.
LOG_SETTINGS: Mapping[str, str] = {
    "log_level": ", ".join(logging.LEVELS),
    "log_format": "json, text, or auto: text on a terminal, JSON lines elsewhere",
}

C = TypeVar("C", bound=ProcessConfig)


class ConfigError(Exception):
    """What is wrong with the configuration, in one sentence for the operator."""


def load(config: type[C], arguments: Sequence[str], environment: Mapping[str, str], program: str) -> tuple[C, bool]:
    """Read a configuration; return it and whether it should only be printed. Raises ConfigError.

    Exits through argparse for `--help`, `--help-all` and for flags that do not exist.
    """
    flags = vars(_parser(config, program).parse_args(list(arguments)))
    only_print, file = bool(flags.pop("print_config")), flags.pop("config")
    values: dict[str, Any] = {}
    if file is not None:
        values.update(_from_file(config, Path(file)))
    values.update(_from_environment(config, environment))
    values.update({name: value for name, value in flags.items() if value is not None})
    values.update({field.name: _parts(values[field.name]) for field in _lists(config) if field.name in values})
    try:
        return msgspec.convert(values, config, strict=False), only_print
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from error


def description(config: type[ProcessConfig], name: str) -> str:
    """The description of one setting."""
    return next(settings[name] for settings in config.SUBJECTS.values() if name in settings)


def printed(config: msgspec.Struct) -> str:
    """The configuration as a file that `--config` reads."""
    return yaml.safe_dump({_flag(name): value for name, value in msgspec.to_builtins(config).items()}, sort_keys=True)


def comma_separated(text: str) -> tuple[str, ...]:
    """The parts of a setting that is a list in one text."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _lists(config: type[ProcessConfig]) -> list[msgspec.structs.FieldInfo]:
    """Settings that hold several texts: flags that may be repeated, lists in a file, commas anywhere."""
    return [field for field in _fields(config).values() if field.type == tuple[str, ...]]


def _fields(config: type[ProcessConfig]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(config)}


def _parts(value: Any) -> Any:
    if isinstance(value, str):
        return list(comma_separated(value))
    return [part for piece in value for part in _parts(piece)] if isinstance(value, list) else value


def _flag(name: str) -> str:
    return name.replace("_", "-")


class _HelpAll(argparse.Action):
    """`--help-all`: print every setting by subject and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        _parser(self.const[0], self.const[1], full=True).print_help()
        parser.exit()


def _parser(config: type[ProcessConfig], program: str, *, full: bool = False) -> argparse.ArgumentParser:
    """The parser of all settings; its help shows the common ones, or all of them."""
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} [--SETTING VALUE ...]",
        description=config.SUMMARY,
        epilog="A setting may also stand in a YAML file (--config) or in a variable (ATOLL_LOG_LEVEL for --log-level).",
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=_HELP_WIDTH, width=100),
    )
    fields = _fields(config)
    for subject, settings in config.SUBJECTS.items():
        group = parser.add_argument_group(subject)
        for name, text in settings.items():
            _add(group, fields[name], text if full or name in config.COMMON else None)
    group = parser.add_argument_group("Configuration and help")
    group.add_argument("--config", metavar="FILE", help="read settings from a YAML file")
    group.add_argument("--print-config", action="store_true", help="print the resulting settings and exit")
    group.add_argument("-h", "--help", action="help", help="show the common settings and exit")
    text = f"show all {len(fields)} settings by subject and exit"
    group.add_argument("--help-all", action=_HelpAll, nargs=0, const=(config, program), help=text)
    return parser


def _add(group: Any, field: msgspec.structs.FieldInfo, text: str | None) -> None:
    """Add the flag of one setting; without a text it is not in the help."""
    flag, several = "--" + _flag(field.name), field.type == tuple[str, ...]
    if text is not None:
        value = ",".join(field.default) if several else field.default
        default = "" if value in {"", False} else f" (default: {_written(value)})"
        text = f"{text}{'; may be repeated' if several else ''}{default}".replace("%", "%%")
    options: dict[str, Any] = {"dest": field.name, "help": text if text is not None else argparse.SUPPRESS}
    if field.type is bool:
        group.add_argument(flag, nargs="?", const="true", metavar="true|false", **options)
    else:
        group.add_argument(flag, action="append" if several else "store", metavar=_metavar(field), **options)


def _written(value: object) -> str:
    """A value as it is written in a flag."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _metavar(field: msgspec.structs.FieldInfo) -> str:
    if field.type is int:
        return "N"
    return _METAVARS.get(field.name.rpartition("_")[2], "VALUE")


def _from_file(config: type[ProcessConfig], path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"the configuration file {path} does not hold a mapping")
    return {_name(config, str(key), f"key {key!r} in {path}"): value for key, value in document.items()}


def _from_environment(config: type[ProcessConfig], environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        _name(config, name.removeprefix(PREFIX).lower(), f"variable {name}"): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }


def _name(config: type[ProcessConfig], key: str, source: str) -> str:
    """The field that a key names. Raises ConfigError."""
    name = key.replace("-", "_")
    if name not in config.__struct_fields__:
        raise ConfigError(f"unknown setting: {source}")
    return name
