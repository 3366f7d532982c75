"""One frozen configuration Struct a process, from defaults, file, environment and flags, in this order.

A process declares a msgspec Struct whose fields are its settings; `load` reads them. Unknown keys in a file,
unknown `ATOLL_` variables and unknown flags refuse to start, so that a typing error is never a silent default.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

PREFIX = "ATOLL_"
C = TypeVar("C", bound=msgspec.Struct)


class ConfigError(Exception):
    """What is wrong with the configuration, in one sentence for the operator."""


def load(config: type[C], arguments: Sequence[str], environment: Mapping[str, str], usage: str) -> tuple[C, bool]:
    """Read a configuration; gives it and whether it should only be printed. Raises ConfigError.

    Exits through argparse for `--help` and for flags that do not exist.
    """
    parser = _parser(config, usage)
    flags = vars(parser.parse_args(list(arguments)))
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


def _lists(config: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    """Settings that hold several texts: flags that may be repeated, lists in a file, commas anywhere."""
    return [field for field in msgspec.structs.fields(config) if field.type == tuple[str, ...]]


def _parts(value: Any) -> Any:
    if isinstance(value, str):
        return [part for part in (piece.strip() for piece in value.split(",")) if part]
    return [part for piece in value for part in _parts(piece)] if isinstance(value, list) else value


def comma_separated(text: str) -> tuple[str, ...]:
    """The parts of a setting that is a list in one text."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def printed(config: msgspec.Struct) -> str:
    """The configuration as a file that `--config` reads."""
    return yaml.safe_dump({_flag(name): value for name, value in msgspec.to_builtins(config).items()}, sort_keys=True)


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _parser(config: type[msgspec.Struct], usage: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=usage, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these settings")
    parser.add_argument("--print-config", action="store_true", help="print what would be used, and leave")
    several = {field.name for field in _lists(config)}
    for field in msgspec.structs.fields(config):
        text = _description(config, field.name)
        flag = "--" + _flag(field.name)
        if field.type is bool:
            parser.add_argument(flag, dest=field.name, nargs="?", const="true", help=text)
        elif field.name in several:
            parser.add_argument(flag, dest=field.name, action="append", help=f"{text}; may be repeated")
        else:
            parser.add_argument(flag, dest=field.name, help=f"{text} (default: {field.default!r})".replace("%", "%%"))
    return parser


def _description(config: type[msgspec.Struct], name: str) -> str:
    descriptions: Mapping[str, str] = getattr(config, "__descriptions__", {})
    return descriptions.get(name, "")


def _from_file(config: type[msgspec.Struct], path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"the configuration file {path} does not hold a mapping")
    return {_known(config, str(key), f"key {key!r} in {path}"): value for key, value in found.items()}


def _from_environment(config: type[msgspec.Struct], environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        _known(config, name.removeprefix(PREFIX).lower(), f"variable {name}"): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }


def _known(config: type[msgspec.Struct], key: str, where: str) -> str:
    name = key.replace("-", "_")
    if name not in config.__struct_fields__:
        raise ConfigError(f"unknown setting: {where}")
    return name
