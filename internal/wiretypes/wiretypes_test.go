package wiretypes

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the types of the clients")

// TestClientTypesMatchOpenAPI verifies that the types of the console, the TypeScript package and
// the Python package match docs/openapi.json, and therefore the types of the server.
func TestClientTypesMatchOpenAPI(t *testing.T) {
	openapi, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for file, generate := range map[string]func([]byte) ([]byte, error){
		"ui/src/wire.ts":                    GenerateTypeScript,
		"sdk/typescript/src/wire.ts":        GenerateTypeScript,
		"sdk/python/src/brig/_documents.py": GeneratePython,
	} {
		want, err := generate(openapi)
		if err != nil {
			t.Fatal(err)
		}
		path := "../../" + file
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s does not match docs/openapi.json: run `make docs` (%v)", file, err)
		}
	}
}

// boxes is a document with a schema for each construct. The schema Limits is used in requests
// and in responses, and a request may write memory as text.
const boxes = `{
	"paths": {"/boxes": {"post": {
		"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Spec"}}}},
		"responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/BoxEvent"}}}}}
	}, "patch": {
		"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Move"}}}}
	}}},
	"components": {"schemas": {
		"Spec": {"type": "object", "additionalProperties": false, "required": ["name"], "properties": {
			"name": {"type": "string", "description": "a name, not */"},
			"limits": {"$ref": "#/components/schemas/Limits"},
			"mode": {"oneOf": [{"type": "integer"}, {"type": "string", "writeOnly": true}]}
		}},
		"Limits": {"type": "object", "properties": {"memory": {"oneOf": [{"type": "integer"}, {"type": "string", "writeOnly": true}]}}},
		"Box": {"type": "object", "description": "A box.", "required": ["state"], "properties": {
			"state": {"type": "string", "enum": ["full", "empty"]},
			"limits": {"$ref": "#/components/schemas/Limits"},
			"labels": {"type": "object", "additionalProperties": {"type": "number"}},
			"result": {},
			"error": {"oneOf": [{"$ref": "#/components/schemas/End"}, {"type": "null"}]},
			"lists": {"type": "array", "items": {"type": ["array", "null"], "items": {"type": "boolean"}}}
		}},
		"End": {"type": "object"},
		"Move": {"type": "object", "required": ["from"], "properties": {"from": {"type": "string"}, "all": {"type": "boolean"}}},
		"AtEvent": {"allOf": [{"type": "object", "required": ["event"], "properties": {"event": {"type": "string", "enum": ["at"]}}}, {"$ref": "#/components/schemas/Box"}]},
		"BoxEvent": {"oneOf": [{"$ref": "#/components/schemas/AtEvent"}, {"$ref": "#/components/schemas/End"}]}
	}}
}`

func TestTypeScriptGeneratesTypes(t *testing.T) {
	got, err := GenerateTypeScript([]byte(boxes))
	if err != nil {
		t.Fatal(err)
	}
	want := "// " + madeBy + `

export type AtEvent = Box & {
  event: "at";
};

/** A box. */
export interface Box {
  error?: End | null;
  labels?: Record<string, number>;
  limits?: Limits;
  lists?: (boolean[] | null)[];
  result?: unknown;
  state: "full" | "empty";
}

export type BoxEvent = AtEvent | End;

export type End = Record<string, unknown>;

export interface Limits {
  memory?: number;
}

export interface LimitsRequest {
  memory?: number | string;
}

export interface Move {
  all?: boolean;
  from: string;
}

export interface Spec {
  limits?: LimitsRequest;
  mode?: number | string;
  /** a name, not *\/ */
  name: string;
}
`
	if string(got) != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPythonGeneratesTypedDicts(t *testing.T) {
	got, err := GeneratePython([]byte(boxes))
	if err != nil {
		t.Fatal(err)
	}
	_, classes, _ := strings.Cut(string(got), "import NotRequired\n")
	want := `

class Box(TypedDict):
    error: NotRequired[Union[End, None]]
    labels: NotRequired[dict[str, float]]
    limits: NotRequired[Limits]
    lists: NotRequired[list[Union[list[bool], None]]]
    result: NotRequired[Any]
    state: Literal["full", "empty"]


class End(TypedDict):
    pass


class Limits(TypedDict):
    memory: NotRequired[int]


class LimitsRequest(TypedDict):
    memory: NotRequired[Union[int, str]]


Move = TypedDict(
    "Move",
    {
        "all": "NotRequired[bool]",
        "from": "str",
    },
)


class Spec(TypedDict):
    limits: NotRequired[LimitsRequest]
    mode: NotRequired[Union[int, str]]
    name: str


class AtEvent(Box):
    event: Literal["at"]

BoxEvent = Union[AtEvent, End]
`
	if classes != want {
		t.Errorf("got:\n%s\nwant:\n%s", classes, want)
	}
}

// TestUnsupportedSchemasAreRejected checks that a schema outside the supported part is
// rejected, because a client would otherwise get no or a wrong type.
func TestUnsupportedSchemasAreRejected(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type": "string"}`: "schema X: is a [string], not an object or a union",
		`{"type": "object", "properties": {"p": {"type": "decimal"}}}`:                                   `property p: unknown type "decimal"`,
		`{"type": "object", "properties": {"p": {"$ref": "#/components/schemas/Y"}}}`:                    "property p: unknown reference",
		`{"type": "object", "properties": {"p": {"enum": [1]}}}`:                                         "property p: enum with 1",
		`{"type": "object", "properties": {"p": {"allOf": [{}]}}}`:                                       "property p: allOf without a name",
		`{"type": "object", "properties": {"p": {"type": "object", "properties": {"q": {}}}}}`:           "property p: object without a name",
		`{"allOf": [{"$ref": "#/components/schemas/X"}, {"$ref": "#/components/schemas/X"}]}`:            "two references",
		`{"oneOf": [{"$ref": "#/components/schemas/Y"}]}`:                                                "unknown reference",
		`{"type": "object", "properties": {"p": {"type": "array", "items": {"type": "tuple"}}}}`:         "unknown type",
		`{"type": "object", "properties": {"p": {"oneOf": [{"type": "integer"}, {"type": "complex"}]}}}`: "unknown type",
		`{"type": 7}`: "decode OpenAPI document",
	} {
		_, err := GenerateTypeScript([]byte(`{"components": {"schemas": {"X": ` + schema + `}}}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", schema, err, want)
		}
	}
	conflicting := strings.Replace(boxes, `"End": {`, `"LimitsRequest": {"type": "object"}, "End": {`, 1)
	if _, err := GeneratePython([]byte(conflicting)); err == nil || !strings.Contains(err.Error(), "two types are named LimitsRequest") {
		t.Errorf("a type with a taken name: error %v", err)
	}
}
