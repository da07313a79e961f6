"""Short schemas like those of well-known collections, each with a valid document.

``boxes`` names the fields that are JSON boxes; all other fields have their own controls.
"""

STRING = {"type": "string"}
SHAPES = [
    {
        "id": "OpenAI strict function: all required, null unions, nothing more",
        "schema": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City and country"},
                "units": {"type": ["string", "null"], "enum": ["celsius", "fahrenheit", None]},
                "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}},
                "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            },
            "required": ["location", "units", "days", "steps", "next"],
            "additionalProperties": False,
            "$defs": {
                "step": {
                    "type": "object",
                    "properties": {"explanation": STRING, "output": STRING},
                    "required": ["explanation", "output"],
                    "additionalProperties": False,
                }
            },
        },
        "data": {
            "location": "Oslo", "units": None, "days": None,
            "steps": [{"explanation": "a", "output": "b"}], "next": None,
        },
        "boxes": [],
    },
    {
        "id": "MCP file system: edits with defaults",
        "schema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "path": STRING,
                "edits": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"oldText": STRING, "newText": STRING},
                        "required": ["oldText", "newText"],
                        "additionalProperties": False,
                    },
                },
                "dryRun": {"type": "boolean", "default": False},
                "head": {"type": "number"},
                "paths": {"type": "array", "items": STRING, "minItems": 1},
            },
            "required": ["path", "edits"],
            "additionalProperties": False,
        },
        "data": {"path": "/a", "edits": [{"oldText": "x", "newText": ""}]},
        "boxes": [],
    },
    {
        "id": "MCP memory graph: entities with lists in rows",
        "schema": {
            "type": "object",
            "properties": {
                "entities": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": STRING,
                            "entityType": STRING,
                            "observations": {"type": "array", "items": STRING},
                        },
                        "required": ["name", "entityType", "observations"],
                    },
                }
            },
            "required": ["entities"],
        },
        "data": {"entities": [{"name": "a", "entityType": "b", "observations": ["c"]}]},
        "boxes": [],
    },
    {
        "id": "MCP tool without arguments",
        "schema": {"type": "object", "properties": {}, "required": []},
        "data": {},
        "boxes": [],
    },
    {
        "id": "Kubernetes CRD: OpenAPI v3, int or string, unknown fields kept",
        "schema": {
            "type": "object",
            "properties": {
                "apiVersion": STRING,
                "metadata": {"type": "object"},
                "spec": {
                    "type": "object",
                    "properties": {
                        "replicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
                        "port": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
                        "selector": {
                            "type": "object",
                            "properties": {"matchLabels": {"type": "object", "additionalProperties": STRING}},
                            "x-kubernetes-map-type": "atomic",
                        },
                        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        "nodeName": {"type": "string", "nullable": True},
                    },
                    "required": ["selector"],
                },
            },
        },
        "data": {
            "apiVersion": "v1", "metadata": {"name": "x"},
            "spec": {"port": "http", "selector": {"matchLabels": {"app/name": "y"}}, "template": {"a": {"b": [1]}}},
        },
        "boxes": ["/metadata/*", "/metadata/0", "/spec/template/*", "/spec/template/0"],
    },
    {
        "id": "GeoJSON: oneOf by type, tuples in lists in lists",
        "schema": {
            "oneOf": [
                {
                    "title": "GeoJSON Point",
                    "type": "object",
                    "required": ["type", "coordinates"],
                    "properties": {
                        "type": {"type": "string", "enum": ["Point"]},
                        "coordinates": {"type": "array", "minItems": 2, "items": {"type": "number"}},
                    },
                },
                {
                    "title": "GeoJSON Polygon",
                    "type": "object",
                    "required": ["type", "coordinates"],
                    "properties": {
                        "type": {"type": "string", "enum": ["Polygon"]},
                        "coordinates": {
                            "type": "array",
                            "items": {"type": "array", "minItems": 4, "items": {"type": "array", "minItems": 2, "items": {"type": "number"}}},
                        },
                        "bbox": {"type": "array", "minItems": 4, "items": {"type": "number"}},
                    },
                },
            ]
        },
        "data": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1.5], [0, 0]]]},
        "boxes": [],
    },
    {
        "id": "package.json: patterns, string or object, draft 7",
        "schema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "definitions": {
                "person": {
                    "type": ["object", "string"],
                    "required": ["name"],
                    "properties": {"name": STRING, "email": {"type": "string", "format": "email"}},
                },
                "dependency": {"type": "object", "additionalProperties": STRING},
            },
            "patternProperties": {"^_": {"description": "own", "tsType": "any"}},
            "properties": {
                "name": {"type": "string", "maxLength": 214, "pattern": "^(?:(?:@(?:[a-z0-9-*~][a-z0-9-*._~]*)?/[a-z0-9-._~])|[a-z0-9-~])[a-z0-9-._~]*$"},
                "author": {"$ref": "#/definitions/person"},
                "dependencies": {"$ref": "#/definitions/dependency"},
                "bin": {"type": ["string", "object"], "additionalProperties": STRING},
                "private": {"anyOf": [{"type": "boolean", "enum": [True]}, {"type": "string", "enum": ["false", "true"]}]},
                "license": {"anyOf": [STRING, {"enum": ["MIT", "ISC"]}]},
            },
            "anyOf": [{"type": "object", "not": {"required": ["bundledDependencies", "bundleDependencies"]}}],
        },
        "data": {"name": "a", "author": {"name": "x", "url": "y"}, "dependencies": {"b": "^1"}, "bin": "./c", "_id": 5},
        "boxes": ["/+/*", "/_id", "/author|0/url"],
    },
    {
        "id": "tsconfig: allOf of definitions, enum or pattern without case",
        "schema": {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "https://json.schemastore.org/tsconfig",
            "type": "object",
            "allOf": [{"$ref": "#/definitions/compilerOptionsDefinition"}, {"anyOf": [{"$ref": "#/definitions/filesDefinition"}, {"$ref": "#/definitions/includeDefinition"}]}],
            "definitions": {
                "compilerOptionsDefinition": {
                    "properties": {
                        "compilerOptions": {
                            "type": ["object", "null"],
                            "properties": {
                                "target": {"type": ["string", "null"], "default": "ES5", "anyOf": [{"enum": ["ES5", "ESNext"]}, {"pattern": "^([Ee][Ss]([356]|(20(1[56789]|2[0123]))|[Nn][Ee][Xx][Tt]))$"}]},
                                "strict": {"type": ["boolean", "null"], "default": False},
                                "paths": {"type": ["object", "null"], "additionalProperties": {"type": ["array", "null"], "uniqueItems": True, "items": {"type": ["string", "null"]}}},
                            },
                        }
                    }
                },
                "filesDefinition": {"properties": {"files": {"type": ["array", "null"], "uniqueItems": True, "items": {"type": ["string", "null"]}}}},
                "includeDefinition": {"properties": {"include": {"type": ["array", "null"], "items": {"type": ["string", "null"]}}}},
            },
        },
        "data": {"compilerOptions": {"target": "es2020", "paths": {"@/*": ["src/*"]}}, "include": ["src"]},
        "boxes": [],
    },
    {
        "id": "FHIR: everything refers to everything",
        "schema": {
            "$schema": "http://json-schema.org/draft-06/schema#",
            "discriminator": {"propertyName": "resourceType", "mapping": {"Patient": "#/definitions/Patient"}},
            "oneOf": [{"$ref": "#/definitions/Patient"}, {"$ref": "#/definitions/Bundle"}],
            "definitions": {
                "id": {"type": "string", "pattern": "^[A-Za-z0-9\\-\\.]{1,64}$"},
                "Extension": {"properties": {"url": {"$ref": "#/definitions/id"}, "extension": {"type": "array", "items": {"$ref": "#/definitions/Extension"}}}, "additionalProperties": False},
                "HumanName": {"properties": {"use": {"enum": ["usual", "official"]}, "given": {"type": "array", "items": {"type": "string"}}, "extension": {"type": "array", "items": {"$ref": "#/definitions/Extension"}}}, "additionalProperties": False},
                "Patient": {"properties": {"resourceType": {"const": "Patient"}, "id": {"$ref": "#/definitions/id"}, "name": {"type": "array", "items": {"$ref": "#/definitions/HumanName"}}, "contained": {"type": "array", "items": {"$ref": "#/definitions/ResourceList"}}}, "additionalProperties": False, "required": ["resourceType"]},
                "Bundle": {"properties": {"resourceType": {"const": "Bundle"}, "entry": {"type": "array", "items": {"$ref": "#/definitions/ResourceList"}}}, "additionalProperties": False, "required": ["resourceType"]},
                "ResourceList": {"oneOf": [{"$ref": "#/definitions/Patient"}, {"$ref": "#/definitions/Bundle"}]},
            },
        },
        "data": {"resourceType": "Bundle", "entry": [{"resourceType": "Patient", "id": "p1", "name": [{"use": "usual", "given": ["A"]}]}]},
        "boxes": [],
    },
    {
        "id": "Vega-Lite: unions of unions, recursive",
        "schema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/Spec",
            "definitions": {
                "Spec": {"anyOf": [{"$ref": "#/definitions/Unit"}, {"$ref": "#/definitions/Layer"}]},
                "Unit": {"type": "object", "additionalProperties": False, "required": ["mark"], "properties": {"mark": {"$ref": "#/definitions/AnyMark"}, "width": {"anyOf": [{"type": "number"}, {"type": "string", "enum": ["container"]}]}, "encoding": {"type": "object", "properties": {"x": {"$ref": "#/definitions/Channel"}}}}},
                "Layer": {"type": "object", "additionalProperties": False, "required": ["layer"], "properties": {"layer": {"type": "array", "items": {"$ref": "#/definitions/Spec"}}}},
                "AnyMark": {"anyOf": [{"$ref": "#/definitions/Mark"}, {"type": "object", "additionalProperties": False, "required": ["type"], "properties": {"type": {"$ref": "#/definitions/Mark"}, "opacity": {"type": "number", "minimum": 0, "maximum": 1}}}]},
                "Mark": {"type": "string", "enum": ["bar", "line", "point"]},
                "Channel": {"type": "object", "additionalProperties": False, "properties": {"field": {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": False, "required": ["repeat"], "properties": {"repeat": {"type": "string"}}}]}, "value": {}}},
            },
        },
        "data": {"layer": [{"mark": "bar", "width": 10}, {"layer": [{"mark": {"type": "line"}, "encoding": {"x": {"field": "a"}}}]}]},
        "boxes": ["|0/encoding/x/value", "|1/layer/0|0/encoding/x/value", "|1/layer/1|0/encoding/x/value", "|1/layer/1|1/layer/0|0/encoding/x/value"],
    },
    {
        "id": "rjsf: dependencies that add fields",
        "schema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"pets": {"type": "string", "enum": ["No", "Yes: One"], "default": "No"}, "card": {"type": "number"}},
            "required": ["pets"],
            "dependencies": {
                "pets": {"oneOf": [{"properties": {"pets": {"enum": ["No"]}}}, {"properties": {"pets": {"enum": ["Yes: One"]}, "age": {"type": "number"}}, "required": ["age"]}]},
                "card": ["address"],
            },
        },
        "data": {"pets": "Yes: One", "age": 3},
        "boxes": [],
    },
    {
        "id": "JSON Forms: conditions and enums with titles",
        "schema": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "oneOf": [{"const": "a", "title": "Alpha"}, {"const": "b", "title": "Beta"}]},
                "due": {"type": "string", "format": "date-time"},
                "rating": {"type": "integer", "maximum": 5, "exclusiveMinimum": 0},
            },
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "b"}}},
            "then": {"required": ["reason"], "properties": {"reason": {"type": "string", "minLength": 3}}},
        },
        "data": {"kind": "b", "reason": "because", "rating": 5},
        "boxes": [],
    },
    {
        "id": "uniforms: uniforms key, integer keys, allOf at the root",
        "schema": {
            "title": "Address",
            "type": "object",
            "allOf": [{"properties": {"city": {"type": "string", "uniforms": {"placeholder": "x"}}}, "required": ["city"]}, {"properties": {"zip": {"type": "string", "pattern": "[0-9]{5}"}}}],
            "properties": {"1": {"type": "integer"}},
        },
        "data": {"city": "Oslo", "1": 2, "zip": "12345"},
        "boxes": [],
    },
    {
        "id": "LangChain: Optional list of dicts, titles, Any",
        "schema": {
            "title": "search",
            "type": "object",
            "properties": {
                "query": {"title": "Query", "type": "string"},
                "filters": {"anyOf": [{"items": {"additionalProperties": True, "type": "object"}, "type": "array"}, {"type": "null"}], "default": None, "title": "Filters"},
                "extra": {"default": None, "title": "Extra"},
            },
            "required": ["query"],
        },
        "data": {"query": "x", "filters": [{"a": 1}]},
        "boxes": ["/filters/*/*", "/filters/0/*", "/filters/0/0", "/extra"],
    },
]  # fmt: skip
