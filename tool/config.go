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
	// Template is the template of the tool sandboxes; empty means the server's
	// default.
	Template string
	// Idle is the time after which an unused tool sandbox ends; 0 means the
	// default.
	Idle time.Duration
	// Python and Node are the packages that every tool sandbox has.
	Python, Node []string
}

// The configurations of each kind. Pointers and slices may be null.
type (
	localConfig struct {
		Dir      string       `json:"sandbox_dir"`
		UseVenv  bool         `json:"use_venv"`
		VenvName string       `json:"venv_name"`
		Python   []PipPackage `json:"pip_requirements"`
	}
	e2bConfig struct {
		Timeout  int      `json:"timeout"`
		Template *string  `json:"template"`
		Python   []string `json:"pip_requirements"`
	}
	modalConfig struct {
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

// maxIdle is the maximum of the field timeout, in seconds.
const maxIdle = 24 * 60 * 60

// Limits on a configuration, because it is stored and is parsed for each call.
const (
	maxConfig = 64 << 10 // bytes
	maxDir    = 4096     // bytes of sandbox_dir
	maxLabel  = 255      // bytes of other names
)

// newConfig returns a configuration of a kind with its defaults.
func newConfig(kind brig.ToolKind) any {
	switch kind {
	case brig.ToolE2B:
		return &e2bConfig{Timeout: 300}
	case brig.ToolModal:
		return &modalConfig{Timeout: 60, Language: "python"}
	}
	return &localConfig{Dir: workDir, VenvName: "venv"}
}

// fields lists the names of the fields of each kind.
var fields = map[brig.ToolKind][]string{
	brig.ToolLocal: {"sandbox_dir", "use_venv", "venv_name", "pip_requirements"},
	brig.ToolE2B:   {"timeout", "template", "template_id", "pip_requirements"},
	brig.ToolModal: {"timeout", "pip_requirements", "npm_requirements", "language"},
}

// Default returns the default configuration of a kind.
func Default(kind brig.ToolKind) json.RawMessage {
	b, err := json.Marshal(newConfig(kind))
	if err != nil {
		return nil // these types can always be marshaled
	}
	return b
}

// ParseConfig returns the kind of a configuration and its complete fields. A
// configuration does not contain its kind, so ParseConfig returns the first kind that
// matches.
func ParseConfig(raw json.RawMessage) (brig.ToolKind, json.RawMessage, error) {
	values, err := configFields(raw)
	if err != nil {
		return "", nil, err
	}
	var nearest error
	for _, kind := range []brig.ToolKind{brig.ToolLocal, brig.ToolE2B, brig.ToolModal} {
		full, err := completeConfig(kind, values)
		if err == nil {
			return kind, full, nil
		}
		if nearest == nil || matchRank(err) > matchRank(nearest) {
			nearest = err
		}
	}
	return "", nil, nearest
}

// matchRank ranks the error of a configuration by how well it matches a kind. An
// unknown field ranks lowest, then a value of the wrong type, then an invalid
// value.
func matchRank(err error) int {
	switch e := brig.AsError(err); {
	case e.Field == "config":
		return 0
	case e.Err != nil:
		return 1
	}
	return 2
}

// ParseConfigOfKind is like ParseConfig for a configuration of a known kind.
func ParseConfigOfKind(kind brig.ToolKind, raw json.RawMessage) (json.RawMessage, error) {
	values, err := configFields(raw)
	if err != nil {
		return nil, err
	}
	return completeConfig(kind, values)
}

// configFields returns the fields of a configuration, which must be a JSON object.
func configFields(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(raw) > maxConfig {
		return nil, brig.InvalidField("config", "%d bytes are too many", len(raw)).WithHint("give at most %s", brig.FormatBytes(maxConfig))
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return nil, brig.InvalidField("config", "it is not a JSON object").WithHint(`for example {"pip_requirements":[{"name":"cowsay"}]}`)
	}
	return values, nil
}

func completeConfig(kind brig.ToolKind, values map[string]json.RawMessage) (json.RawMessage, error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(fields[kind], name) {
			return nil, brig.InvalidField("config", "a configuration of the kind %s has no field %q", kind, brig.Clip(name, 80)).
				WithHint("it has %s", strings.Join(fields[kind], ", "))
		}
	}
	// An earlier version of the API used another name for the field.
	if id, ok := values["template_id"]; ok {
		values = maps.Clone(values)
		delete(values, "template_id")
		values["template"] = id
	}
	c := newConfig(kind)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		one, err := json.Marshal(map[string]json.RawMessage{name: values[name]})
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
	_, err = ParseSetup(kind, full)
	return full, err
}

// ParseSetup parses a complete configuration. Its error names the invalid field.
func ParseSetup(kind brig.ToolKind, full json.RawMessage) (Setup, error) {
	s, c := Setup{Kind: kind}, newConfig(kind)
	if err := json.Unmarshal(full, c); err != nil {
		return s, fmt.Errorf("read configuration of the kind %s: %w", kind, err)
	}
	idle := 0
	switch c := c.(type) {
	case *localConfig:
		if c.Dir == "" || strings.ContainsRune(c.Dir, 0) {
			return s, brig.InvalidField("config.sandbox_dir", "it is empty").WithHint("for example /workspace, or leave it out")
		}
		if err := errors.Join(checkLength("sandbox_dir", c.Dir, maxDir), checkLength("venv_name", c.VenvName, maxLabel)); err != nil {
			return s, err
		}
		for _, p := range c.Python {
			s.Python = append(s.Python, p.Python())
		}
	case *e2bConfig:
		s.Python, idle = c.Python, c.Timeout
		if c.Template != nil {
			s.Template = *c.Template
		}
		if err := checkLength("template", s.Template, maxLabel); err != nil {
			return s, err
		}
	case *modalConfig:
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
func checkLength(name, value string, limit int) error {
	if len(value) > limit {
		return brig.InvalidField("config."+name, "%d bytes are too many", len(value)).WithHint("give at most %d", limit)
	}
	return nil
}

// quietEnvironment holds the variables of every tool with the lowest precedence. They reduce
// noise in the output, because programs parse it.
var quietEnvironment = map[string]string{
	"PYTHONWARNINGS": "ignore", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1",
}

// MergeEnvironment merges layers of variables. Later layers take precedence.
func MergeEnvironment(layers ...map[string]string) map[string]string {
	out := maps.Clone(quietEnvironment)
	for _, l := range layers {
		maps.Copy(out, l)
	}
	return out
}
