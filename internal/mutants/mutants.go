// Package mutants puts small faults into Brig's code, to see which tests notice.
// The program gremlins lists the places; this package chooses some of them,
// makes the changes, and keeps what came of each.
package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one change of one file.
type Mutant struct {
	File   string `json:"file"` // relative to the root, with slashes
	Line   int    `json:"line"`
	Column int    `json:"column"` // in bytes, from 1
	Type   string `json:"type"`   // as gremlins names it
	From   string `json:"from"`
	To     string `json:"to"`
	// Killed is what noticed it: Nothing, or one of the stages.
	Killed Stage `json:"killed"`
	// By is a test that failed.
	By string `json:"by,omitempty"`
	// Why is a person's reason for a mutant that nothing needs to notice, or that
	// only the long tests do.
	Why string `json:"why,omitempty"`
}

// Stage is a set of tests that a mutant can be killed by.
type Stage string

// The stages, from the cheapest. A mutant that does not compile is none.
const (
	Untried  Stage = ""
	Invalid  Stage = "does not compile"
	Packages Stage = "packages"
	Small    Stage = "make test"
	Full     Stage = "make test-all"
	Nothing  Stage = "nothing"
)

// changes are what a type of gremlins makes of a token.
var changes = map[string]map[string]string{
	"ARITHMETIC_BASE":       {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
	"CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"},
	"INCREMENT_DECREMENT":   {"++": "--", "--": "++"},
	"INVERT_LOGICAL":        {"&&": "||", "||": "&&"},
	"INVERT_LOOPCTRL":       {"break": "continue", "continue": "break"},
	"INVERT_NEGATIVES":      {"-": "+"},
}

// Parse reads what gremlins lists of a folder.
func Parse(list []byte, root, dir string) ([]Mutant, error) {
	var in struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type         string `json:"type"`
				Line, Column int
			} `json:"mutations"`
		} `json:"files"`
	}
	if err := json.Unmarshal(list, &in); err != nil {
		return nil, err
	}
	var out []Mutant
	for _, f := range in.Files {
		file := path.Join(dir, f.Name)
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		for _, m := range f.Mutations {
			x := Mutant{File: file, Line: m.Line, Column: m.Column, Type: m.Type}
			at, err := offset(src, m.Line, m.Column)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			// The longest token that fits: "<=" before "<".
			for from, to := range changes[m.Type] {
				if bytes.HasPrefix(src[at:], []byte(from)) && len(from) > len(x.From) {
					x.From, x.To = from, to
				}
			}
			if x.From != "" {
				out = append(out, x)
			}
		}
	}
	slices.SortFunc(out, compare)
	return out, nil
}

func compare(a, b Mutant) int { return strings.Compare(a.Key(), b.Key()) }

// Key names a mutant.
func (m *Mutant) Key() string {
	return fmt.Sprintf("%s:%04d:%03d %s", m.File, m.Line, m.Column, m.Type)
}

func (m *Mutant) String() string {
	return fmt.Sprintf("%s:%d:%d %s becomes %s", m.File, m.Line, m.Column, m.From, m.To)
}

// offset is the place of a line and a column in a source.
func offset(src []byte, line, column int) (int, error) {
	at := 0
	for range line - 1 {
		i := bytes.IndexByte(src[at:], '\n')
		if i < 0 {
			return 0, fmt.Errorf("there is no line %d", line)
		}
		at += i + 1
	}
	if at += column - 1; at >= len(src) {
		return 0, fmt.Errorf("there is no column %d in line %d", column, line)
	}
	return at, nil
}

// Sample chooses n mutants, the same for the same seed.
func Sample(all []Mutant, n int, seed uint64) []Mutant {
	out := slices.Clone(all)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	out = out[:min(n, len(out))]
	slices.SortFunc(out, compare)
	return out
}

// apply makes the changes of some mutants of one file.
func apply(src []byte, list []Mutant) ([]byte, error) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Mutant) int { return compare(b, a) })
	for _, m := range list {
		at, err := offset(src, m.Line, m.Column)
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(src[at:], []byte(m.From)) {
			return nil, fmt.Errorf("%s: there is no %q any more", m.Key(), m.From)
		}
		src = slices.Concat(src[:at], []byte(m.To), src[at+len(m.From):])
	}
	return src, nil
}

// Overlay writes changed files into a folder, and a file for the option -overlay
// of the go command, whose name it returns.
func Overlay(root, dir string, list []Mutant) (string, error) {
	byFile := map[string][]Mutant{}
	for _, m := range list {
		byFile[m.File] = append(byFile[m.File], m)
	}
	replace := map[string]string{}
	for file, of := range byFile {
		name := filepath.Join(root, filepath.FromSlash(file))
		src, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if src, err = apply(src, of); err != nil {
			return "", err
		}
		replace[name] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[name], src, 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
