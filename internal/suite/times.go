package suite

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"time"
)

// Times holds the durations of jobs and plans, in seconds. They determine the
// start order and the displayed expected duration.
type Times struct {
	Plans map[string]float64 `json:"plans"`
	Jobs  map[string]float64 `json:"jobs"`
}

// PassRecords records the last commit at which each part of `make test-all` passed.
type PassRecords struct {
	Parts map[string]PassRecord `json:"parts"`
	Times
}

// PassRecord holds the commit and the date at which a part last passed.
type PassRecord struct {
	Commit string `json:"commit"`
	Date   string `json:"date"`
}

// PartsToRun returns the parts that are affected by changes since they last
// passed, in the order of Parts. For each part it returns the reason: a changed
// file, or that no passing commit is known. The function changed lists the
// files that differ from a commit.
func (g PassRecords) PartsToRun(tests []Test, changed func(commit string) ([]string, error)) (names []string, reasons map[string]string) {
	reasons = map[string]string{}
	files := map[string][]string{}
	for _, name := range partNames() {
		commit := g.Parts[name].Commit
		if commit == "" {
			names, reasons[name] = append(names, name), "no record of it in green.json"
			continue
		}
		if _, ok := files[commit]; !ok {
			list, err := changed(commit)
			if err != nil {
				list = []string{err.Error()} // matches no row of the table, so it selects all parts
			}
			files[commit] = list
		}
		affected, partReasons := PartsFor(files[commit], tests)
		if slices.Contains(affected, name) {
			names, reasons[name] = append(names, name), partReasons[name]
		}
	}
	return names, reasons
}

// ReadPassRecords reads the record. A missing file yields an empty record.
func ReadPassRecords(file string) (PassRecords, error) {
	g := PassRecords{Parts: map[string]PassRecord{}, Times: newTimes()}
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
func (g PassRecords) Write(file string) error {
	b, err := json.MarshalIndent(g, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// Rotation returns the share of long case lists to run on a date. It is the number of ISO weeks
// since the first week of 1970. It does not depend on the commit, so that a commit without
// changes runs the same tests.
func Rotation(now time.Time) string {
	days := now.Unix() / 86400 // 1970-01-01 was a Thursday
	return strconv.FormatInt((days+3)/7, 10)
}

func newTimes() Times {
	return Times{Plans: map[string]float64{}, Jobs: map[string]float64{}}
}

// ReadTimes reads the last durations on this host. They override the durations in g.
func ReadTimes(file string, g PassRecords) Times {
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

// Write stores the durations for the next run.
func (t Times) Write(file string) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// minRecorded is the minimum duration, in seconds, of a recorded job.
const minRecorded = 3

// PartTimes returns the durations that are worth recording for other hosts.
func (t Times) PartTimes() Times {
	out := newTimes()
	for name, s := range t.Plans {
		out.Plans[name] = math.Round(s)
	}
	for name, s := range t.Jobs {
		if s >= minRecorded {
			out.Jobs[name] = math.Round(s)
		}
	}
	return out
}
