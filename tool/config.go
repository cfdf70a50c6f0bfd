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

// Setup is what a configuration says, whatever its kind.
type Setup struct {
	Kind brig.ToolKind
	// Template is what boxes are made from; empty for the server's default.
	Template string
	// Idle is after how long a box ends that nobody uses; 0 for the default.
	Idle time.Duration
	// Python and Node are the packages that every box has.
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

// PipPackage is a package as configurations of the kind local have them, and
// tools.
type PipPackage struct {
	Name    string  `json:"name"`
	Version *string `json:"version"`
}

// Python is the package as pip knows it.
func (p PipPackage) Python() string { return p.join("==") }

// Node is the package as npm knows it.
func (p PipPackage) Node() string { return p.join("@") }

func (p PipPackage) join(with string) string {
	if p.Version == nil || *p.Version == "" {
		return p.Name
	}
	return p.Name + with + *p.Version
}

// workDir is where tools run if nobody says otherwise.
const workDir = "/workspace"

// maxIdle is the longest time in seconds that a configuration may name.
const maxIdle = 24 * 60 * 60

// The bounds of a configuration, which is kept, and read for each call.
const (
	maxConfig = 64 << 10 // bytes
	maxDir    = 4096     // of sandbox_dir
	maxLabel  = 255      // of other names
)

// fresh returns a configuration of a kind with its defaults.
func fresh(kind brig.ToolKind) any {
	switch kind {
	case brig.ToolE2B:
		return &e2b{Timeout: 300}
	case brig.ToolModal:
		return &modal{Timeout: 60, Language: "python"}
	}
	return &local{Dir: workDir, VenvName: "venv"}
}

// fields are those of each kind.
var fields = map[brig.ToolKind][]string{
	brig.ToolLocal: {"sandbox_dir", "use_venv", "venv_name", "pip_requirements"},
	brig.ToolE2B:   {"timeout", "template", "template_id", "pip_requirements"},
	brig.ToolModal: {"timeout", "pip_requirements", "npm_requirements", "language"},
}

// Default returns the configuration of a kind that says nothing.
func Default(kind brig.ToolKind) json.RawMessage {
	b, err := json.Marshal(fresh(kind))
	if err != nil {
		return nil // these marshal
	}
	return b
}

// Config returns the kind of a configuration and all of its fields. It is of
// the first kind that it fits, since it does not say of which it is.
func Config(raw json.RawMessage) (brig.ToolKind, json.RawMessage, error) {
	given, err := givenFields(raw)
	if err != nil {
		return "", nil, err
	}
	var nearest error
	for _, kind := range []brig.ToolKind{brig.ToolLocal, brig.ToolE2B, brig.ToolModal} {
		full, err := as(kind, given)
		if err == nil {
			return kind, full, nil
		}
		if nearest == nil || nearness(err) > nearness(nearest) {
			nearest = err
		}
	}
	return "", nil, nearest
}

// nearness is how far a configuration got: one without the field, with a value
// of another type, or with a value that is wrong.
func nearness(err error) int {
	switch e := brig.AsError(err); {
	case e.Field == "config":
		return 0
	case e.Err != nil:
		return 1
	}
	return 2
}

// As is Config of a configuration whose kind is known.
func As(kind brig.ToolKind, raw json.RawMessage) (json.RawMessage, error) {
	given, err := givenFields(raw)
	if err != nil {
		return nil, err
	}
	return as(kind, given)
}

// givenFields are those of a configuration that is a JSON object.
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

func as(kind brig.ToolKind, given map[string]json.RawMessage) (json.RawMessage, error) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(fields[kind], name) {
			return nil, brig.InvalidField("config", "a configuration of the kind %s has no field %q", kind, brig.Clip(name, 80)).
				WithHint("it has %s", strings.Join(fields[kind], ", "))
		}
	}
	// The text that founded it called the field otherwise.
	if id, ok := given["template_id"]; ok {
		given = maps.Clone(given)
		delete(given, "template_id")
		given["template"] = id
	}
	c := fresh(kind)
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

// Read returns what a whole configuration says, or names the field that is
// wrong.
func Read(kind brig.ToolKind, full json.RawMessage) (Setup, error) {
	s, c := Setup{Kind: kind}, fresh(kind)
	if err := json.Unmarshal(full, c); err != nil {
		return s, fmt.Errorf("read configuration of the kind %s: %w", kind, err)
	}
	idle := 0
	switch c := c.(type) {
	case *local:
		if c.Dir == "" || strings.ContainsRune(c.Dir, 0) {
			return s, brig.InvalidField("config.sandbox_dir", "it is empty").WithHint("for example /workspace, or leave it out")
		}
		if err := errors.Join(short("sandbox_dir", c.Dir, maxDir), short("venv_name", c.VenvName, maxLabel)); err != nil {
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
		if err := short("template", s.Template, maxLabel); err != nil {
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

// short refuses a field with more than so many bytes.
func short(name, value string, most int) error {
	if len(value) > most {
		return brig.InvalidField("config."+name, "%d bytes are too many", len(value)).WithHint("give at most %d", most)
	}
	return nil
}
