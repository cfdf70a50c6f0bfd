package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Setup is the content of a configuration of any kind.
type Setup struct {
	Kind brig.ToolKind
	// Template is the template of boxes; empty means the server's default.
	Template string
	// Idle is the time after which an unused box ends; 0 means the default.
	Idle time.Duration
	// Python and Node are the packages in every box.
	Python, Node []string
}

// The fields of the kinds. Pointers and slices may be null.
type (
	local struct {
		Dir      string       `json:"sandbox_dir"`
		UseVenv  bool         `json:"use_venv"`
		VenvName string       `json:"venv_name"`
		Python   []PipPackage `json:"pip_requirements"`
	}
	e2b struct {
		Timeout  int      `json:"timeout"`
		Template *string  `json:"template"`
		Python   []string `json:"pip_requirements"`
	}
	modal struct {
		Timeout  int      `json:"timeout"`
		Python   []string `json:"pip_requirements"`
		Node     []string `json:"npm_requirements"`
		Language string   `json:"language"`
	}
)

// PipPackage is a package in a configuration of the kind local, or in a tool.
type PipPackage struct {
	Name    string  `json:"name"`
	Version *string `json:"version"`
}

// Python returns the package in pip's syntax.
func (p PipPackage) Python() string { return p.join("==") }

// Node returns the package in npm's syntax.
func (p PipPackage) Node() string { return p.join("@") }

func (p PipPackage) join(with string) string {
	if p.Version == nil || *p.Version == "" {
		return p.Name
	}
	return p.Name + with + *p.Version
}

// workDir is the default working directory of tools.
const workDir = "/workspace"

// maxIdle is the longest time in seconds that a configuration may name.
const maxIdle = 24 * 60 * 60

// Limits of a configuration, which is stored and is parsed for each call.
const (
	maxConfig = 64 << 10 // bytes
	maxDir    = 4096     // of sandbox_dir
	maxLabel  = 255      // of other names
)

// newConfig returns a configuration of a kind with its defaults.
func newConfig(kind brig.ToolKind) any {
	switch kind {
	case brig.ToolE2B:
		return &e2b{Timeout: 300}
	case brig.ToolModal:
		return &modal{Timeout: 60, Language: "python"}
	}
	return &local{Dir: workDir, VenvName: "venv"}
}

// fields lists the fields of each kind.
var fields = map[brig.ToolKind][]string{
	brig.ToolLocal: {"sandbox_dir", "use_venv", "venv_name", "pip_requirements"},
	brig.ToolE2B:   {"timeout", "template", "template_id", "pip_requirements"},
	brig.ToolModal: {"timeout", "pip_requirements", "npm_requirements", "language"},
}

// Default returns the default configuration of a kind.
func Default(kind brig.ToolKind) json.RawMessage {
	b, err := json.Marshal(newConfig(kind))
	if err != nil {
		return nil // these always marshal
	}
	return b
}

// Config returns the kind of a configuration and its complete fields. A
// configuration does not state its kind; Config returns the first kind that
// matches.
func Config(raw json.RawMessage) (brig.ToolKind, json.RawMessage, error) {
	given, err := givenFields(raw)
	if err != nil {
		return "", nil, err
	}
	var nearest error
	for _, kind := range []brig.ToolKind{brig.ToolLocal, brig.ToolE2B, brig.ToolModal} {
		full, err := configAs(kind, given)
		if err == nil {
			return kind, full, nil
		}
		if nearest == nil || matchRank(err) > matchRank(nearest) {
			nearest = err
		}
	}
	return "", nil, nearest
}

// matchRank ranks how close a configuration came to a kind: an unknown field, a
// value of the wrong type, or an invalid value.
func matchRank(err error) int {
	switch e := brig.AsError(err); {
	case e.Field == "config":
		return 0
	case e.Err != nil:
		return 1
	}
	return 2
}

// ConfigOf is like Config for a configuration of a known kind.
func ConfigOf(kind brig.ToolKind, raw json.RawMessage) (json.RawMessage, error) {
	given, err := givenFields(raw)
	if err != nil {
		return nil, err
	}
	return configAs(kind, given)
}

// givenFields returns the fields of a configuration, which must be a JSON
// object.
func givenFields(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(raw) > maxConfig {
		return nil, brig.InvalidField("config", "%d bytes are too many", len(raw)).WithHint("give at most %s", brig.FormatBytes(maxConfig))
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return nil, brig.InvalidField("config", "it is not a JSON object").WithHint(`for example {"pip_requirements":[{"name":"cowsay"}]}`)
	}
	return given, nil
}

func configAs(kind brig.ToolKind, given map[string]json.RawMessage) (json.RawMessage, error) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(fields[kind], name) {
			return nil, brig.InvalidField("config", "a configuration of the kind %s has no field %q", kind, brig.Clip(name, 80)).
				WithHint("it has %s", strings.Join(fields[kind], ", "))
		}
	}
	// An earlier text of the API named the field differently.
	if id, ok := given["template_id"]; ok {
		given = maps.Clone(given)
		delete(given, "template_id")
		given["template"] = id
	}
	c := newConfig(kind)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		one, err := json.Marshal(map[string]json.RawMessage{name: given[name]})
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(one))
			d.DisallowUnknownFields()
			err = d.Decode(c)
		}
		if err != nil {
			return nil, brig.InvalidField("config."+name, "its value is of another type").WithHint("for the kind %s", kind).Because(err)
		}
	}
	full, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	_, err = Read(kind, full)
	return full, err
}

// Read parses a complete configuration. Its error names the invalid field.
func Read(kind brig.ToolKind, full json.RawMessage) (Setup, error) {
	s, c := Setup{Kind: kind}, newConfig(kind)
	if err := json.Unmarshal(full, c); err != nil {
		return s, fmt.Errorf("read configuration of the kind %s: %w", kind, err)
	}
	idle := 0
	switch c := c.(type) {
	case *local:
		if c.Dir == "" || strings.ContainsRune(c.Dir, 0) {
			return s, brig.InvalidField("config.sandbox_dir", "it is empty").WithHint("for example /workspace, or leave it out")
		}
		if err := errors.Join(checkLength("sandbox_dir", c.Dir, maxDir), checkLength("venv_name", c.VenvName, maxLabel)); err != nil {
			return s, err
		}
		for _, p := range c.Python {
			s.Python = append(s.Python, p.Python())
		}
	case *e2b:
		s.Python, idle = c.Python, c.Timeout
		if c.Template != nil {
			s.Template = *c.Template
		}
		if err := checkLength("template", s.Template, maxLabel); err != nil {
			return s, err
		}
	case *modal:
		s.Python, s.Node, idle = c.Python, c.Node, c.Timeout
		if c.Language != "python" && c.Language != "typescript" {
			return s, brig.InvalidField("config.language", "unknown language %q", brig.Clip(c.Language, 80)).WithHint("use python or typescript")
		}
	}
	if idle < 0 || idle > maxIdle || idle == 0 && kind != brig.ToolLocal {
		return s, brig.InvalidField("config.timeout", "%d seconds are out of bounds", idle).WithHint("give 1 to %d", maxIdle)
	}
	s.Idle = time.Duration(idle) * time.Second
	if err := CheckPython("config.pip_requirements", s.Python); err != nil {
		return s, err
	}
	return s, CheckNode("config.npm_requirements", s.Node)
}

// checkLength returns an error if a field exceeds a number of bytes.
func checkLength(name, value string, most int) error {
	if len(value) > most {
		return brig.InvalidField("config."+name, "%d bytes are too many", len(value)).WithHint("give at most %d", most)
	}
	return nil
}

// quietEnvironment holds the lowest-priority variables of every tool, because programs
// parse its output.
var quietEnvironment = map[string]string{
	"PYTHONWARNINGS": "ignore", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1",
}

// Environment merges layers of variables. Later layers take precedence.
func Environment(layers ...map[string]string) map[string]string {
	out := maps.Clone(quietEnvironment)
	for _, l := range layers {
		maps.Copy(out, l)
	}
	return out
}
