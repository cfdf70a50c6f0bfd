package e2b

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// Bounds of logs.
const (
	mostEntries = 1000
	mostLog     = 16 << 20 // bytes that are looked at, the first ones
)

// logEntry is one line of a sandbox's log.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// logger is what the command line takes entries to come from.
const logger = "process"

// entries reads a sandbox's log. No two lines have the same time, so that a
// client that follows the log can say where it was: of lines of one millisecond
// each is one later than the one before.
func (d *Door) entries(ctx context.Context, s *brig.Sandbox) ([]logEntry, error) {
	log, err := d.Service.Logs(ctx, string(s.ID), brig.LogOptions{Times: true})
	if err != nil {
		return nil, ended(s.ID, err)
	}
	defer log.Close()
	text, err := io.ReadAll(io.LimitReader(log, mostLog))
	if err != nil {
		return nil, err
	}
	var out []logEntry
	last := s.Created.UTC().Truncate(time.Millisecond).Add(-time.Millisecond)
	for line := range bytes.Lines(text) {
		at, message, _ := brig.CutLogTime(strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "\uFFFD"))
		if !at.After(last) {
			at = last.Add(time.Millisecond)
		}
		last = at
		out = append(out, logEntry{Timestamp: at, Level: "info", Message: message, Fields: map[string]string{"logger": logger}})
	}
	return out, nil
}

// millis reads a moment in milliseconds from a query.
func millis(q url.Values, name string) (time.Time, bool, error) {
	if q.Get(name) == "" {
		return time.Time{}, false, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, false, brig.InvalidField(name, "it is not a number of milliseconds")
	}
	return time.UnixMilli(n), true, nil
}

func entryLimit(q url.Values) (int, error) {
	if q.Get("limit") == "" {
		return mostEntries, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 0 || n > mostEntries {
		return 0, brig.InvalidField("limit", "give 0 to %d", mostEntries)
	}
	return n, nil
}

// oldLine is an entry as clients of old take it: the line is JSON itself.
type oldLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

func (d *Door) logsV1(w http.ResponseWriter, r *http.Request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	start, _, err := millis(q, "start")
	if err != nil {
		return err
	}
	limit, err := entryLimit(q)
	if err != nil {
		return err
	}
	all, err := d.entries(r.Context(), s)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e logEntry) bool { return e.Timestamp.Before(start) })
	all = all[:min(limit, len(all))]
	lines := []oldLine{}
	for _, e := range all {
		line, err := door.Marshal(map[string]string{"level": e.Level, "message": e.Message, "logger": logger})
		if err != nil {
			return err
		}
		lines = append(lines, oldLine{e.Timestamp, strings.TrimSpace(string(line))})
	}
	d.write(w, r, http.StatusOK, struct {
		Logs    []oldLine  `json:"logs"`
		Entries []logEntry `json:"logEntries"`
	}{lines, append([]logEntry{}, all...)})
	return nil
}

func (d *Door) logsV2(w http.ResponseWriter, r *http.Request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	from, given, err := millis(q, "cursor")
	if err != nil {
		return err
	}
	limit, err := entryLimit(q)
	if err != nil {
		return err
	}
	backward := q.Get("direction") == "backward"
	if dir := q.Get("direction"); dir != "" && dir != "forward" && !backward {
		return brig.InvalidField("direction", "give forward or backward")
	}
	level := q.Get("level")
	if level != "" && !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		return brig.InvalidField("level", "give debug, info, warn or error")
	}
	all, err := d.entries(r.Context(), s)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e logEntry) bool {
		outside := given && (backward && e.Timestamp.After(from) || !backward && e.Timestamp.Before(from))
		// All that there is counts as information.
		return outside || level == "warn" || level == "error" || !strings.Contains(e.Message, q.Get("search"))
	})
	if backward {
		slices.Reverse(all)
	}
	d.write(w, r, http.StatusOK, struct {
		Logs []logEntry `json:"logs"`
	}{append([]logEntry{}, all[:min(limit, len(all))]...)})
	return nil
}
