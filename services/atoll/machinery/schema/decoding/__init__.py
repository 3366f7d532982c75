"""Strict decoding of request bodies: JSON and YAML to JSON values, duplicate keys, bounds on depth and numbers.

`json_decoder` and `yaml_decoder` are the entry points and return a `document.Document`. Not here: choosing the decoder
from the content type (apiserver).
"""
