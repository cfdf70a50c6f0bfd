package suite

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
)

// Times are what jobs and plans took, in seconds: they decide what begins
// first, and what a person is told to expect.
type Times struct {
	Plans map[string]float64 `json:"plans"`
	Jobs  map[string]float64 `json:"jobs"`
}

// Green records for each part of `make test-all` the last commit at which it
// passed.
type Green struct {
	Parts map[string]Passed `json:"parts"`
	Times
}

// Passed is when a part passed.
type Passed struct {
	Commit string `json:"commit"`
	Date   string `json:"date"`
}

// Asked returns the parts that belong to what changed since each of them passed,
// in the order of Parts, and for each the reason: a file, or that no commit is
// known. The function changed lists the files that differ from a commit.
func (g Green) Asked(tests []Test, changed func(commit string) ([]string, error)) (names []string, why map[string]string) {
	why = map[string]string{}
	files := map[string][]string{}
	for _, name := range everything() {
		commit := g.Parts[name].Commit
		if commit == "" {
			names, why[name] = append(names, name), "no record of it in green.json"
			continue
		}
		if _, ok := files[commit]; !ok {
			list, err := changed(commit)
			if err != nil {
				list = []string{err.Error()} // no row of the table fits it, so it asks for everything
			}
			files[commit] = list
		}
		asked, reasons := PartsFor(files[commit], tests)
		if slices.Contains(asked, name) {
			names, why[name] = append(names, name), reasons[name]
		}
	}
	return names, why
}

// ReadGreen reads the record; without a file it is empty.
func ReadGreen(file string) (Green, error) {
	g := Green{Parts: map[string]Passed{}, Times: newTimes()}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	return g, err
}

// Write writes the record.
func (g Green) Write(file string) error {
	b, err := json.MarshalIndent(g, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

func newTimes() Times {
	return Times{Plans: map[string]float64{}, Jobs: map[string]float64{}}
}

// ReadTimes reads what this machine measured last, over what the record says.
func ReadTimes(file string, g Green) Times {
	t := newTimes()
	maps.Copy(t.Plans, g.Plans)
	maps.Copy(t.Jobs, g.Jobs)
	var own Times
	if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &own) == nil {
		maps.Copy(t.Plans, own.Plans)
		maps.Copy(t.Jobs, own.Jobs)
	}
	return t
}

// Write keeps the times for the next run.
func (t Times) Write(file string) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// worthKeeping is how long a job takes whose time is recorded.
const worthKeeping = 3

// OfParts returns the times that are worth recording for other machines.
func (t Times) OfParts() Times {
	out := newTimes()
	for name, s := range t.Plans {
		out.Plans[name] = math.Round(s)
	}
	for name, s := range t.Jobs {
		if s >= worthKeeping {
			out.Jobs[name] = math.Round(s)
		}
	}
	return out
}
