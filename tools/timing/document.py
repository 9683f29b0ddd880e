"""data/timing.json as text: a line a table, so that a change of a law is a readable difference."""

import json


def items(values, pad="    "):
    return ",\n".join(pad + json.dumps(v) for v in values)


def law_text(entry):
    body = {k: v for k, v in entry.items() if k != "tables"}
    return "    " + json.dumps(body)[:-1] + ', "tables": [\n' + items(entry["tables"], "      ") + "]}"


def dump(document):
    lines = ["{", f'  "schema": {json.dumps(document["schema"])},', f'  "about": {json.dumps(document["about"])},']
    lines.append('  "sources": {')
    lines.append(",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in document["sources"].items()))
    lines.append("  },")
    for key in ("engines", "steps"):
        lines += [f'  "{key}": [', items(document[key]), "  ],"]
    lines += ['  "laws": [', ",\n".join(law_text(entry) for entry in document["laws"])]
    lines.append("  ]\n}\n")
    return "\n".join(lines)
