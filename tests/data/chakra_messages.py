"""Chakra's messages by Google's protobuf: an encoder that has nothing in common with the reader under test.

The descriptor is made of facts of schema/protobuf/et_def.proto of mlcommons/chakra (names, numbers and types of fields), as
far as its converter fills them.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.encoder import _VarintBytes as varint

FIELD = descriptor_pb2.FieldDescriptorProto
PACKAGE = "chakra_of_tests"
MESSAGES = {
    "Attribute": [("name", 1, "STRING"), ("int32_val", 7, "INT32"), ("int64_val", 9, "INT64"), ("uint32_val", 11, "UINT32"),
                  ("uint64_val", 13, "UINT64"), ("sint64_val", 17, "SINT64"), ("fixed64_val", 21, "FIXED64"),
                  ("sfixed32_val", 23, "SFIXED32"), ("bool_val", 27, "BOOL"), ("string_val", 29, "STRING")],
    "Metadata": [("version", 1, "STRING"), ("attr", 2, "Attribute*")],
    "InputsOutputs": [("values", 1, "STRING"), ("shapes", 2, "STRING"), ("types", 3, "STRING")],
    "Node": [("id", 1, "UINT64"), ("name", 2, "STRING"), ("type", 3, "INT32"), ("ctrl_deps", 4, "UINT64*"),
             ("data_deps", 5, "UINT64*"), ("start_time_micros", 6, "UINT64"), ("duration_micros", 7, "UINT64"),
             ("inputs", 8, "InputsOutputs"), ("outputs", 9, "InputsOutputs"), ("attr", 10, "Attribute*")],
}


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name="chakra_of_tests.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            plain = kind.rstrip("*")
            added = message.field.add(name=field, number=number, label=FIELD.LABEL_REPEATED if kind != plain
                                      else FIELD.LABEL_OPTIONAL)
            if plain in MESSAGES:
                added.type, added.type_name = FIELD.TYPE_MESSAGE, f".{PACKAGE}.{plain}"
            else:
                added.type = getattr(FIELD, f"TYPE_{plain}")
            if name == "Attribute" and field != "name":  # alternatives: written where they are zero, too
                added.oneof_index = 0
        if name == "Attribute":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


CLASSES = _classes()
METADATA, COMPUTE, COLLECTIVE = 1, 4, 7


def attributes(values):
    """Of the types that the converter gives them: booleans, texts, and integers of 64 bits; a pair names its own type."""
    made = []
    for name, value in values.items():
        kind, plain = value if isinstance(value, tuple) else (
            "bool_val" if isinstance(value, bool) else "string_val" if isinstance(value, str) else "int64_val", value)
        made.append(CLASSES["Attribute"](name=name, **{kind: plain}))
    return made


def node(number, name, duration=0, kind=COMPUTE, ctrl=(), data=(), shapes=(), types=(), values=(), start=0, **named):
    return CLASSES["Node"](
        id=number, name=name, type=kind, ctrl_deps=ctrl, data_deps=data, duration_micros=duration, start_time_micros=start,
        inputs=CLASSES["InputsOutputs"](values=str(list(values)), shapes=str(list(shapes)), types=str(list(types))),
        attr=attributes(named))


def metadata(schema="1.1.1-chakra.0.0.4"):
    return CLASSES["Metadata"](attr=attributes({"schema": schema, "pid": ("uint64_val", 12), "time": "2026-11-24 10:00:00",
                                                "start_ts": ("uint64_val", 1), "finish_ts": ("uint64_val", 2)}))


def framed(messages):
    """A file: each message behind its length."""
    return b"".join(varint(len(data)) + data for data in (message.SerializeToString() for message in messages))


def converted(trace):
    """PyTorch's execution trace as the converter writes it: of nodes without what a device did, durations of zero."""
    nodes = []
    for one in trace["nodes"]:
        named = {each["name"]: each["value"] for each in one["attrs"]}
        nodes.append(node(one["id"], one["name"], ctrl=[one["ctrl_deps"]], shapes=one["inputs"]["shapes"],
                          types=one["inputs"]["types"], values=one["inputs"]["values"], is_cpu_op=True,
                          **{name: named[name] for name in ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")}))
    return framed([metadata(trace["schema"]), *nodes])
