package httpapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

func TestDecodeReadsAllFieldTypes(t *testing.T) {
	var in v1.RunRequest
	doc := `{"language":"python","code":"\u00e9\ud83d\ude00","command":null,"arguments":{"a":[1,{"b":null}]},
		"files":[{"path":"a","content_b64":"aGk=","mode":"0755"},{"path":"b","content":"x","mode":420}],
		"limits":{"memory":"1.5GiB","cpus":0.5,"disk":1024},"env":{"K":"v"},"stream":true,"timeout_ms":5}`
	if err := Decode([]byte(doc), &in); err != nil {
		t.Fatal(err)
	}
	text := "x"
	want := v1.RunRequest{
		Language: "python", Code: "é😀", Arguments: v1.Object(`{"a":[1,{"b":null}]}`),
		Files:  v1.Files{{Path: "a", ContentB64: []byte("hi"), Mode: 0o755}, {Path: "b", Content: &text, Mode: 0o644}},
		Limits: &v1.Limits{Memory: 3 << 29, CPUs: 0.5, Disk: 1024}, Env: map[string]string{"K": "v"}, Stream: true, TimeoutMS: 5,
	}
	if !reflect.DeepEqual(in, want) {
		t.Errorf("got %+v\nwant %+v", in, want)
	}
}

// A struct that is embedded in another one has its fields in the same object.
func TestDecodeReadsEmbeddedFields(t *testing.T) {
	var in v1.VolumeDirRequest
	if err := Decode([]byte(`{"path":"/a","uid":7,"mode":448,"force":true}`), &in); err != nil {
		t.Fatal(err)
	}
	if in.Path != "/a" || !in.Force || in.UID == nil || *in.UID != 7 || in.Mode == nil || *in.Mode != 0o700 || in.GID != nil {
		t.Errorf("got %+v", in)
	}
	for doc, want := range map[string]string{
		`{"path":"/a","mod":448}`:            "mod",
		`{"path":"/a","mode":-1}`:            "mode",
		`{"path":"/a","mode":4294967296}`:    "mode",
		`{"path":"/a","mode":1.5}`:           "mode",
		`{"path":"/a","mode":"0644"}`:        "mode",
		`{"path":"/a","uid":null,"uid":1}`:   "uid",
		`{"path":"/a","VolumeAttributes":1}`: "VolumeAttributes",
	} {
		for _, decode := range []func([]byte, any) error{Decode, DecodeDescribed} {
			var in v1.VolumeDirRequest
			if e := brig.AsError(decode([]byte(doc), &in)); e == nil || e.Kind != brig.InvalidArgument || e.Field != want {
				t.Errorf("%s: %v, want an error of %s", doc, e, want)
			}
		}
	}
	if err := DecodeDescribed([]byte(`{"path":"/a","uid":0,"mode":420.0}`), &in); err != nil || *in.UID != 0 || *in.Mode != 0o644 {
		t.Errorf("got %+v, %v", in, err)
	}
}

func TestDecodeNamesTheField(t *testing.T) {
	for doc, want := range map[string]string{
		`{"limits":{"memory":-}}`:                            "limits.memory",
		`{"limits":{"memory":1.5}}`:                          "limits.memory",
		`{"limits":{"memory":[]}}`:                           "limits.memory",
		`{"limits":{"cpus":"1"}}`:                            "limits.cpus",
		`{"limits":{"cpus":1e999}}`:                          "limits.cpus",
		`{"limits":{"cpus":NaN}}`:                            "limits.cpus",
		`{"limits":{"open_files":1e3}}`:                      "limits.open_files",
		`{"limits":{"open_files":99999999999999999999}}`:     "limits.open_files",
		`{"limits":[]}`:                                      "limits",
		`{"limits":{"Memory":1}}`:                            "limits.Memory",
		`{"command":["a",null]}`:                             "command[1]",
		`{"command":"ls"}`:                                   "command",
		`{"command":{"0":"ls"}}`:                             "command",
		`{"env":{"K":1}}`:                                    "env.K",
		`{"env":{"a]":null}}`:                                "env.a]",
		`{"env":{"K":"a","K":"b"}}`:                          "env.K",
		`{"code":"a","code":"b"}`:                            "code",
		`{"code":"a","\u0063ode":"b"}`:                       "code",
		"{\"code\":\"\xff\"}":                                "code",
		`{"code":"\ud800"}`:                                  "code",
		`{"code":"\ud800\ud800"}`:                            "code",
		`{"code":"\udc00"}`:                                  "code",
		`{"code":true}`:                                      "code",
		`{"stream":"yes"}`:                                   "stream",
		`{"stream":1}`:                                       "stream",
		`{"files":[{"path":"a"},{"pth":"b"}]}`:               "files[1].pth",
		`{"files":[null]}`:                                   "files[0]",
		`{"files":[{"mode":"0999"}]}`:                        "files[0].mode",
		`{"files":[{"mode":512}]}`:                           "files[0].mode",
		`{"files":{"a":1}}`:                                  "files.a",
		`{"files":7}`:                                        "files",
		`{"stdin_b64":"!"}`:                                  "stdin_b64",
		`{"stdin_b64":[1,2]}`:                                "stdin_b64",
		`{"arguments":[]}`:                                   "arguments",
		`{"arguments":"x"}`:                                  "arguments",
		`{"arguments":{"a":[{"b":1,"b":2}]}}`:                "arguments.a[0].b",
		`{"nope":1}`:                                         "nope",
		`{"timeout_ms":"5s"}`:                                "timeout_ms",
		`{"code":"a`:                                         "code",
		`{"files":[{},{"path":`:                              "files[1].path",
		`{"arguments":` + strings.Repeat(`{"a":`, 100) + "1": "arguments" + strings.Repeat(".a", 63),
		``: "", `null`: "", `[]`: "", `1`: "", `{} {}`: "", `{}x`: "", "{": "", "\x00": "", `{"a"`: "a",
	} {
		var in v1.RunRequest
		err := Decode([]byte(doc), &in)
		e := brig.AsError(err)
		if e == nil || e.Kind != brig.InvalidArgument || e.Field != want {
			t.Errorf("Decode(%.60s) = %v (field %q), want field %q", doc, err, brig.AsError(err).Field, want)
		}
	}
}

func TestDecodeKeepsSecrets(t *testing.T) {
	for _, doc := range []string{
		`{"env":{"K":["hunter2"]}}`, `{"env":"hunter2"}`, `{"limits":{"memory":"hunter2"}}`, `{"nope":"hunter2"}`,
		`{"code":"hunter2`, `{"stdin_b64":"hunter2"}`, `{"files":[{"mode":"hunter2"}]}`, `{"timeout_ms":"hunter2"}`,
	} {
		b, err := json.Marshal(Body(Decode([]byte(doc), new(v1.RunRequest))))
		if err != nil || strings.Contains(string(b), "hunter2") {
			t.Errorf("%s: %s, %v", doc, b, err)
		}
	}
}

// FuzzDecode checks that every input is either decoded or rejected as a client
// error. encoding/json must accept every input that passes the check.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"language":"python","files":{"a":"b"},"limits":{"memory":"5MiB"}}`, `{"command":["a"],"env":{"A":"b"}}`,
		`{"arguments":{"a":[1,2,{"b":"\ud83d\ude00"}]}}`, `{"stdin_b64":"aGk=","stream":true}`, `{"code":"\u00`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []any{new(v1.RunRequest), new(v1.Spec), new(v1.Input)} {
			err := Decode(data, v)
			if err == nil {
				continue
			}
			if e := brig.AsError(err); e.Kind != brig.InvalidArgument || strings.Contains(e.Message, "does not fit") {
				t.Fatalf("Decode(%q) = %v", data, err)
			}
		}
	})
}
