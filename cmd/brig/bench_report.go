//go:build bench

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// report is the result of a benchmark.
type report struct {
	Bench    string       `json:"bench"`
	About    string       `json:"about"`
	Rows     []*row       `json:"rows"`
	Criteria []*criterion `json:"criteria"`
}

// row is the result of one contender. The names of its figures include their units. The function
// columns defines how they are displayed.
type row struct {
	name, peer, note string
	figures          map[string]float64
}

// column defines the heading and the format of a figure.
type column struct{ key, head, format string }

// columns returns all columns in order. A report omits empty columns.
func columns() []column {
	return []column{
		{"count", "N", "%.0f"},
		{"succeeded", "OK", "%.0f"},
		{"hits", "HITS", "%.0f"},
		{"quiet_p50_ms", "QUIET P50", "%.0f ms"},
		{"quiet_p99_ms", "QUIET P99", "%.0f ms"},
		{"p50_ms", "P50", "%.2f ms"},
		{"p99_ms", "P99", "%.2f ms"},
		{"wall_ms", "WALL", "%.0f ms"},
		{"per_s", "RATE", "%.1f/s"},
		{"mb_per_s", "MB/S", "%.1f"},
		{"ratio", "RATIO", "%.3g×"},
		{"cpu_ms", "CPU", "%.2f ms"},
		{"sandbox_cpu_ms", "SANDBOX CPU", "%.2f ms"},
		{"cpu_ratio", "CPU RATIO", "%.3g×"},
		{"cpu_percent", "IDLE CPU", "%.3f %%"},
		{"available_mib", "AVAILABLE", "%.2f MiB"},
		{"private_mib", "PRIVATE", "%.2f MiB"},
		{"shared_mib", "SHARED", "%.2f MiB"},
		{"rss_mib", "RSS", "%.2f MiB"},
		{"disk_mib", "DISK", "%+.1f MiB"},
		{"heap_kib", "HEAP", "%.1f KiB"},
		{"descriptors", "DESCRIPTORS", "%.0f"},
		{"goroutines", "GOROUTINES", "%.0f"},
	}
}

func (r *report) row(name string) *row {
	w := &row{name: name, figures: map[string]float64{}}
	r.Rows = append(r.Rows, w)
	return w
}

// addAbsent adds a row for a missing contender.
func (r *report) addAbsent(name, reason string) { r.row(name).note = "not present (" + reason + ")" }

func (w *row) set(key string, v float64) *row {
	w.figures[key] = v
	return w
}

// addTimes adds the durations and the CPU times of samples to the row.
func (w *row) addTimes(s samples) *row {
	walls := s.values(wallOf)
	w.set("count", float64(len(walls))).set("p50_ms", millis(quantile(walls, 0.5)))
	if len(walls) >= enoughForP99 {
		w.set("p99_ms", millis(quantile(walls, 0.99)))
	}
	if cpu := s.median(cpuOf); cpu > 0 {
		w.set("cpu_ms", millis(cpu))
	}
	return w
}

// compareWith adds the median ratios of the samples to a peer's samples of the same rounds.
func (w *row) compareWith(peer string, s, base samples) *row {
	w.peer = peer
	w.set("ratio", s.ratio(base, wallOf))
	if cpu := s.ratio(base, cpuOf); cpu > 0 {
		w.set("cpu_ratio", cpu)
	}
	return w
}

// MarshalJSON implements json.Marshaler.
func (w *row) MarshalJSON() ([]byte, error) {
	out := map[string]any{"name": w.name}
	for k, v := range w.figures {
		out[k] = v
	}
	for k, v := range map[string]string{"peer": w.peer, "note": w.note} {
		if v != "" {
			out[k] = v
		}
	}
	return json.Marshal(out)
}

// criterion is one requirement with its result.
type criterion struct {
	Text    string  `json:"criterion"`
	Got     float64 `json:"got"`
	Want    float64 `json:"want"`
	Least   bool    `json:"at_least"` // if false, Want is the maximum
	Verdict string  `json:"verdict"`
}

// requireAtMost and requireAtLeast add a criterion. For requireAtMost, a value of 0 means that it
// was not measured.
func (r *report) requireAtMost(text string, got, want float64) {
	r.addCriterion(text, got, want, false)
}
func (r *report) requireAtLeast(text string, got, want float64) {
	r.addCriterion(text, got, want, true)
}

func (r *report) addCriterion(text string, got, want float64, least bool) {
	c := &criterion{Text: text, Got: got, Want: want, Least: least, Verdict: "ok"}
	switch miss := (got - want) / want * 100; {
	case got == 0 && !least:
		c.Verdict = "not measured"
	case least && miss < 0, !least && miss > 0:
		c.Verdict = fmt.Sprintf("missed by %.1f %%", max(miss, -miss))
	}
	r.Criteria = append(r.Criteria, c)
}

// addUnmeasured adds a criterion that could not be measured.
func (r *report) addUnmeasured(text string, want float64, least bool, reason string) {
	r.Criteria = append(r.Criteria, &criterion{Text: text, Want: want, Least: least, Verdict: reason})
}

func (c *criterion) String() string {
	word := "at most"
	if c.Least {
		word = "at least"
	}
	if c.Verdict != "ok" && !strings.HasPrefix(c.Verdict, "missed") {
		return fmt.Sprintf("%s: %s %.4g: %s", c.Text, word, c.Want, c.Verdict)
	}
	return fmt.Sprintf("%s: %.4g, %s %.4g: %s", c.Text, c.Got, word, c.Want, c.Verdict)
}

// printLoad prints a report as a table, or as JSON.
func (c benchCommands) printLoad(r *report) error {
	if c.asJSON {
		return c.printJSON(r)
	}
	fmt.Fprintln(c.stdout, r.About)
	head, cells := r.table()
	if err := c.printTable(head, cells); err != nil {
		return err
	}
	for _, k := range r.Criteria {
		fmt.Fprintln(c.stdout, k)
	}
	return nil
}

func (r *report) table() (head string, cells [][]string) {
	used := map[string]bool{}
	for _, w := range r.Rows {
		for k := range w.figures {
			used[k] = true
		}
	}
	visible := slices.DeleteFunc(columns(), func(k column) bool { return !used[k.key] })
	head = "CONTENDER"
	for _, k := range visible {
		head += "\t" + k.head
	}
	for _, w := range r.Rows {
		line := []string{w.name}
		for _, k := range visible {
			line = append(line, w.cell(k))
		}
		cells = append(cells, append(line, w.note))
	}
	return head + "\t", cells
}

func (w *row) cell(k column) string {
	v, ok := w.figures[k.key]
	if !ok {
		return "-"
	}
	s := fmt.Sprintf(k.format, v)
	if k.key == "ratio" && w.peer != "" {
		s += " " + w.peer
	}
	return s
}
