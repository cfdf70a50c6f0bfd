package tool_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/tool"
)

func TestParseConfigDetectsKind(t *testing.T) {
	for _, c := range []struct{ given, kind, want string }{
		{`{}`, "local", `{"sandbox_dir":"/workspace","use_venv":false,"venv_name":"venv","pip_requirements":null}`},
		{`{"use_venv":true,"pip_requirements":[{"name":"a"},{"name":"b","version":"1"}]}`, "local", `{"sandbox_dir":"/workspace","use_venv":true,"venv_name":"venv","pip_requirements":[{"name":"a","version":null},{"name":"b","version":"1"}]}`},
		{`{"timeout":5}`, "e2b", `{"timeout":5,"template":null,"pip_requirements":null}`},
		{`{"template_id":"t"}`, "e2b", `{"timeout":300,"template":"t","pip_requirements":null}`},
		{`{"pip_requirements":["a==1"]}`, "e2b", `{"timeout":300,"template":null,"pip_requirements":["a==1"]}`},
		{`{"language":"typescript","npm_requirements":["a@1"]}`, "modal", `{"timeout":60,"pip_requirements":null,"npm_requirements":["a@1"],"language":"typescript"}`},
	} {
		kind, full, err := tool.ParseConfig(json.RawMessage(c.given))
		if err != nil || string(kind) != c.kind || string(full) != c.want {
			t.Errorf("%s is %s %s, %v", c.given, kind, full, err)
		}
	}
	for _, c := range []struct{ given, field string }{
		{`[]`, "config"}, {`null`, "config"}, {`x`, "config"}, {`{"tiemout":1}`, "config"}, {`{"timeout":"x"}`, "config.timeout"}, {`{"timeout":0}`, "config.timeout"},
		{`{"timeout":1000000}`, "config.timeout"}, {`{"sandbox_dir":""}`, "config.sandbox_dir"}, {`{"language":"ruby"}`, "config.language"},
		{`{"pip_requirements":["--pre"]}`, "config.pip_requirements[0]"}, {`{"npm_requirements":["../x"]}`, "config.npm_requirements[0]"}, {`{"sandbox_dir":"x","timeout":1}`, "config"},
		{`{"sandbox_dir":"` + strings.Repeat("x", 4097) + `"}`, "config.sandbox_dir"}, {`{"venv_name":"` + strings.Repeat("x", 256) + `"}`, "config.venv_name"},
		{`{"template":"` + strings.Repeat("x", 256) + `"}`, "config.template"}, {`{"timeout":1` + strings.Repeat(" ", 64<<10) + `}`, "config"},
	} {
		if _, _, err := tool.ParseConfig(json.RawMessage(c.given)); brig.AsError(err) == nil || brig.AsError(err).Field != c.field {
			t.Errorf("%s: %v, want the field %s", c.given, err, c.field)
		}
	}
	if _, err := tool.ParseConfigOfKind(brig.ToolE2B, json.RawMessage(`{"use_venv":true}`)); err == nil {
		t.Error("a kind becomes another")
	}
}

// fingerprintOfDefault was computed in Python, with hashlib and json.dumps with
// sorted keys.
const fingerprintOfDefault = "38585387858825995395837620792505480482961890121281728958787290287798295947182"

func TestFingerprintIgnoresKeyOrder(t *testing.T) {
	if got := tool.OrganizationID("default"); got != tool.OrganizationID("default") || got == tool.OrganizationID("other") || len(got) != 40 {
		t.Errorf("organization %s", got)
	}
	s := &brig.ToolSetup{Tenant: "default", Kind: brig.ToolLocal, Config: json.RawMessage(`{"b":[1,{"z":"<é>","a":null}],"a":true}`)}
	got, err := tool.Fingerprint(s)
	if err != nil || got != fingerprintOfDefault {
		t.Errorf("%s, %v", got, err)
	}
	s.Config = json.RawMessage(` {"a": true, "b":[1,{"a":null,"z":"<é>"}]}`)
	if same, _ := tool.Fingerprint(s); same != got {
		t.Error("the order of keys makes another one")
	}
	s.Tenant = "other"
	if other, _ := tool.Fingerprint(s); other == got {
		t.Error("another tenant has the same")
	}
}

func TestEnvironmentPrefersLaterLayers(t *testing.T) {
	got := tool.MergeEnvironment(map[string]string{"A": "setup", "B": "setup", "TERM": "setup"}, nil, map[string]string{"B": "call"})
	want := map[string]string{"A": "setup", "B": "call", "TERM": "setup", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func TestTruncateKeepsLimit(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"abc", 3, "abc"}, {"ééé", 3, "ééé"}, {"", 1, ""},
		{"éééé", 3, "ééé... [NOTE: function output was truncated since it exceeded the character limit (4 > 3)]"},
		{"a\xff\xff", 2, "a\xff... [NOTE: function output was truncated since it exceeded the character limit (3 > 2)]"},
	} {
		if got := tool.Truncate(c.text, c.limit); got != c.want {
			t.Errorf("%q to %d is %q", c.text, c.limit, got)
		}
	}
	if got := tool.ErrorText("f", &brig.ProgramError{Name: "E", Message: strings.Repeat("é", 5000)}); utf8.RuneCountInString(got) != 1000 || !strings.HasPrefix(got, "Error executing function f: E: é") {
		t.Errorf("%d characters", utf8.RuneCountInString(got))
	}
	for source, want := range map[string]string{"": "", "def a():\n  def b(): pass": "a", "def a(): pass\nasync  def c(x): pass\n": "c"} {
		if got := tool.FindLastFunction(source); got != want {
			t.Errorf("the last function of %q is %q", source, got)
		}
	}
}

func TestArgumentsAreConvertedToSchemaTypes(t *testing.T) {
	for _, c := range []struct{ schema, args, want, field string }{
		{``, `{"a":"1"}`, `{"a":"1"}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":"1","b":2}`, `{"a":1}`, ""},
		{`{"parameters":{"properties":{"a":{"type":"integer"}}}}`, `{"a":3.0}`, `{"a":3}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":12345678901234567890}`, `{"a":12345678901234567890}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":1.5}`, "", "args.a"},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":true}`, "", "args.a"},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":"01"}`, "", "args.a"},
		{`{"properties":{"a":{"type":"number"}}}`, `{"a":" 1.5 "}`, `{"a":1.5}`, ""},
		{`{"properties":{"a":{"type":"boolean"}}}`, `{"a":"False"}`, `{"a":false}`, ""},
		{`{"properties":{"a":{"type":"boolean"}}}`, `{"a":"1"}`, "", "args.a"},
		{`{"properties":{"a":{"type":"array","items":{"type":"integer"}}}}`, `{"a":"[1,\"2\"]"}`, `{"a":[1,2]}`, ""},
		{`{"properties":{"a":{"type":"array","items":{"type":"integer"}}}}`, `{"a":[1,"x"]}`, "", "args.a[1]"},
		{`{"properties":{"a":{"type":"array"}}}`, `{"a":"[1] [2]"}`, "", "args.a"},
		{`{"properties":{"a":{"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]}}}`, `{"a":{"b":"1","c":2}}`, `{"a":{"b":1,"c":2}}`, ""},
		{`{"properties":{"a":{"type":"object","required":["b"]}}}`, `{"a":{}}`, "", "args.a.b"},
		{`{"properties":{"a":{"type":"string"}}}`, `{"a":1}`, "", "args.a"},
		{`{"properties":{"a":{"type":["integer","null"]}}}`, `{"a":null}`, `{"a":null}`, ""},
		{`{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, `{"a":"x"}`, "", "args.a"},
		{`{"properties":{"a":{"enum":["x","y"]}}}`, `{"a":"z"}`, "", "args.a"},
		{`{"properties":{"a":{"$ref":"#/$defs/N"}},"$defs":{"N":{"type":"integer"}}}`, `{"a":"7"}`, `{"a":7}`, ""},
		{`{"properties":{"a":{"$ref":"#/$defs/N"}},"$defs":{"N":{"$ref":"#/$defs/N"}}}`, `{"a":"7"}`, `{"a":"7"}`, ""},
		{`{"properties":{"a":{}},"required":["a"]}`, `{}`, "", "args.a"},
		{`{"properties":{"agent_state":{}},"required":["agent_state"]}`, `{}`, `{}`, ""},
		{`{"properties":{}}`, `[]`, "", "args"}, {``, `{} {}`, "", "args"}, {``, `null`, "", "args"}, {`{"properties":[]}`, `{}`, "", "json_schema"},
	} {
		s, err := tool.ParseSchema(json.RawMessage(c.schema))
		var got json.RawMessage
		if err == nil {
			got, err = s.ConvertArguments(json.RawMessage(c.args))
		}
		field := ""
		if err != nil {
			field, got = brig.AsError(err).Field, nil
		}
		if field != c.field || string(got) != c.want {
			t.Errorf("%s with %s is %s, %v", c.args, c.schema, got, err)
		}
	}
	s, err := tool.ParseSchema(json.RawMessage(`{"name":"f","parameters":{"properties":{"z":{},"a":{},"z":{}}}}`))
	if err != nil || s.Name != "f" || !reflect.DeepEqual(s.Parameters, []string{"z", "a"}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestWorkForArgumentsIsLimited checks that a small request cannot cause much work, and
// that the limit grows with the size of the request.
func TestWorkForArgumentsIsLimited(t *testing.T) {
	twice := `{"allOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/x"}]}`
	either := `{"allOf":[{"anyOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/x"}]},{"type":"boolean"}]}`
	fits := strings.Repeat(`{"type":"array"},`, 5000)
	strict := `{"enum":["` + strings.Repeat(`x","`, 5000) + `0","1","2"]}`
	for _, c := range []struct{ what, x, args, field string }{
		{"twice itself", twice, `{"a":1}`, "json_schema"},
		{"one of itself, none of which fits", either, `{"a":"x"}`, "json_schema"},
		{"of a list", `{"items":` + twice + `}`, `{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "json_schema"},
		{"text that is read again and again", `{"anyOf":[` + strings.TrimSuffix(fits, ",") + `]}`, `{"a":"[` + strings.Repeat("1,", 50_000) + `"}`, "json_schema"},
		{"twice itself at once", `{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{},`, 20_000), ",") + `]}`, `{"a":1}`, "json_schema"},
		{"a long list", `{"type":"array","items":{"anyOf":[{"type":"null"},{"type":"boolean"},{"type":"integer"}]}}`, `{"a":[` + strings.Repeat("1,", 500_000) + `1]}`, ""},
		{"a long text", `{"anyOf":[{"type":"integer"},{"type":"string"}]}`, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, ""},
		{"a long list of one of many", `{"items":` + strict + `}`, `{"a":[` + strings.Repeat(`"1",`, 50_000) + `"2"]}`, ""},
		{"none of many", `{"items":` + strict + `}`, `{"a":["1","y"]}`, "args.a[1]"},
		{"a name that is empty", `{"properties":{"":{"type":"integer"}}}`, `{"a":{"":"x"}}`, "args.a."},
	} {
		s, err := tool.ParseSchema(json.RawMessage(`{"$defs":{"x":` + c.x + `},"properties":{"a":{"$ref":"#/$defs/x"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		field := ""
		if _, err := s.ConvertArguments(json.RawMessage(c.args)); err != nil {
			field = brig.AsError(err).Field
		}
		if field != c.field {
			t.Errorf("%s: the field %q, want %q", c.what, field, c.field)
		}
	}
}

// FuzzArguments checks that any schema and arguments yield either valid arguments
// or an InvalidArgument error.
func FuzzArguments(f *testing.F) {
	f.Add(`{"properties":{"a":{"type":["integer","null"],"items":{"$ref":"#/$defs/x"}}},"$defs":{"x":{"anyOf":[{"$ref":"#/$defs/x"},{"type":"array"}]}}}`, `{"a":"[1]"}`)
	f.Add(`{"properties":{"a":{"allOf":[{"type":"object"}],"enum":[1]}},"required":["a"]}`, `{"a":{"b":[{}]}}`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		s, err := tool.ParseSchema(json.RawMessage(schema))
		var got json.RawMessage
		if err == nil {
			got, err = s.ConvertArguments(json.RawMessage(args))
		}
		if err != nil {
			if brig.KindOf(err) != brig.InvalidArgument {
				t.Fatalf("%q with %q: %v", args, schema, err)
			}
			return
		}
		var object map[string]any
		if json.Unmarshal(got, &object) != nil || object == nil {
			t.Fatalf("%q with %q is %q", args, schema, got)
		}
	})
}

// FuzzReceive checks that an unsigned message is never accepted as a report.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"type":"report","size":2,"sum":"00","payload":"{}"}`))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r := tool.Receiver{Key: tool.NewKey()}
		if got := r.Receive(line); got != nil {
			t.Fatalf("%q is %+v", line, got)
		}
		if !r.Garbled && len(bytes.TrimSpace(line)) > 0 {
			t.Fatalf("%q is nothing", line)
		}
	})
}

// FuzzConfig checks that any input yields either a stable configuration or an error
// that names a field.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"timeout":5,"pip_requirements":["a"]}`))
	f.Add([]byte(`{"sandbox_dir":"x","pip_requirements":[{"name":"a","version":null}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		kind, full, err := tool.ParseConfig(raw)
		if err != nil {
			if brig.AsError(err).Field == "" {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if again, err := tool.ParseConfigOfKind(kind, full); err != nil || string(again) != string(full) {
			t.Fatalf("%s becomes %s, %v", full, again, err)
		}
	})
}

func TestLayerCacheReturnsStoredLayer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layers")
	s := &tool.LayerCache{Dir: dir, MaxBytes: 3000, MaxLayer: 100_000}
	nodes := []brig.Node{
		{Path: "d", Type: brig.Directory, Mode: 0o755}, {Path: "d/\xff", Type: brig.RegularFile, Mode: 0o640, Size: 5},
		{Path: "l", Type: brig.Symlink, Target: "../../etc/passwd"}, {Path: "s", Skipped: "a socket"},
	}
	pack := func(on func(brig.Node, io.Reader) error) error {
		for _, n := range nodes {
			if err := on(n, strings.NewReader("hello")); err != nil {
				return err
			}
		}
		return nil
	}
	has := func(digest string) bool {
		c, err := s.Open(digest)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			return false
		}
		return c.Close() == nil
	}
	if has("one") {
		t.Error("there is one")
	}
	if err := s.Put("one", pack); err != nil {
		t.Fatal(err)
	}
	one, err := s.Open("one")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	var got []string
	each := func(n brig.Node, r io.Reader) error {
		content := ""
		if r != nil {
			b, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			content = string(b)
		}
		got = append(got, fmt.Sprintf("%q %s %o %q %q", n.Path, n.Type, n.Mode, n.Target, content))
		return nil
	}
	want := []string{`"d" ` + string(brig.Directory) + ` 755 "" ""`, `"d/\xff" ` + string(brig.RegularFile) + ` 640 "" "hello"`, `"l" ` + string(brig.Symlink) + ` 0 "../../etc/passwd" ""`}
	if err := one.Each(each); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	// A failed Put leaves no files.
	failed := errors.New("no")
	if err := s.Put("two", func(func(brig.Node, io.Reader) error) error { return failed }); !errors.Is(err, failed) || has("two") {
		t.Errorf("%v", err)
	}
	big := func(on func(brig.Node, io.Reader) error) error {
		return on(brig.Node{Path: "x", Type: brig.RegularFile, Size: 200_000}, strings.NewReader(strings.Repeat("x", 200_000)))
	}
	if err := s.Put("big", big); !errors.Is(err, tool.ErrTooLarge) {
		t.Errorf("what is too large: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	// The least recently used layer is removed.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "one.tar.gz"), old, old); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 2900)
	_, _ = rand.Read(noise) // random data does not compress
	for _, name := range []string{"three", "four"} {
		err := s.Put(name, func(on func(brig.Node, io.Reader) error) error {
			return on(brig.Node{Path: "x", Type: brig.RegularFile, Size: int64(len(noise))}, bytes.NewReader(noise))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if has("one") || !has("four") {
		t.Error("the shelf holds more than it may, or lost what is new")
	}
	// A layer that is open can still be read after its removal.
	got = nil
	if err := one.Each(each); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a layer that made room: %q, %v", got, err)
	}
	// Sweep removes an old unfinished file, and keeps a recent one.
	for _, name := range []string{"new-1", "new-2"} {
		if err := os.WriteFile(filepath.Join(dir, name), noise, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "new-1"), old.Add(-time.Minute), old.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	s.Sweep()
	if leftovers, err := filepath.Glob(filepath.Join(dir, "new-*")); err != nil || len(leftovers) != 1 || filepath.Base(leftovers[0]) != "new-2" {
		t.Errorf("%v, %v", leftovers, err)
	}
}

// TestExpensiveSchemaIsRejected checks that a schema that would be too expensive to parse is
// rejected before it is parsed.
func TestExpensiveSchemaIsRejected(t *testing.T) {
	nested := func(n int) string {
		return `{"properties":{"a":{"default":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}}`
	}
	named := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"p%d":{},`, i)
		}
		return `{"parameters":{"properties":{` + strings.TrimSuffix(b.String(), ",") + `}}}`
	}
	long := func(n int) string { return `{"description":"` + strings.Repeat("[", n-18) + `"}` }
	for what, c := range map[string]struct {
		schema string
		ok     bool
	}{
		"as deep as may be": {nested(61), true}, "too deep": {nested(62), false},
		"as many parameters as may be": {named(1000), true}, "too many": {named(1001), false},
		"as long as may be": {long(1 << 20), true}, "too long": {long(1<<20 + 1), false},
		"quotes that are quoted": {`{"description":"\"` + strings.Repeat("[", 100) + `\\"}`, true},
	} {
		_, err := tool.ParseSchema(json.RawMessage(c.schema))
		if (err == nil) != c.ok || err != nil && brig.AsError(err).Field != "json_schema" {
			t.Errorf("%s: %v", what, err)
		}
	}
}
