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
	"github.com/brig-run/brig/api/httpapi"
)

// Limits of logs.
const (
	maxEntries = 1000
	maxLog     = 16 << 20 // bytes that are read, starting at the beginning
)

// telemetry serves the logs and the usage metrics of sandboxes.
type telemetry struct {
	*env
	finder *finder
}

// logEntry is one line of a sandbox's log.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// logger is the source name that the command line expects in entries.
const logger = "process"

// entries returns the entries of a sandbox's log. Every line gets a different
// time, so that a client that follows the log can identify its position. Lines
// of the same millisecond get consecutive times.
func (tm *telemetry) entries(ctx context.Context, s *brig.Sandbox) ([]logEntry, error) {
	log, err := tm.Service.Logs(ctx, string(s.ID), brig.LogOptions{Times: true})
	if err != nil {
		return nil, endedError(s.ID, err)
	}
	defer log.Close()
	text, err := io.ReadAll(io.LimitReader(log, maxLog))
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

// millis returns a time that is given in milliseconds in a query.
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
		return maxEntries, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 0 || n > maxEntries {
		return 0, brig.InvalidField("limit", "give 0 to %d", maxEntries)
	}
	return n, nil
}

// logLineV1 is an entry for old clients, where the line itself is JSON.
type logLineV1 struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

func (tm *telemetry) logsV1(w http.ResponseWriter, r *http.Request) error {
	s, err := tm.finder.find(r)
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
	all, err := tm.entries(r.Context(), s)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e logEntry) bool { return e.Timestamp.Before(start) })
	all = all[:min(limit, len(all))]
	lines := []logLineV1{}
	for _, e := range all {
		line, err := httpapi.Marshal(map[string]string{"level": e.Level, "message": e.Message, "logger": logger})
		if err != nil {
			return err
		}
		lines = append(lines, logLineV1{e.Timestamp, strings.TrimSpace(string(line))})
	}
	tm.write(w, r, http.StatusOK, struct {
		Logs    []logLineV1 `json:"logs"`
		Entries []logEntry  `json:"logEntries"`
	}{lines, append([]logEntry{}, all...)})
	return nil
}

func (tm *telemetry) logsV2(w http.ResponseWriter, r *http.Request) error {
	s, err := tm.finder.find(r)
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
	all, err := tm.entries(r.Context(), s)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e logEntry) bool {
		outside := given && (backward && e.Timestamp.After(from) || !backward && e.Timestamp.Before(from))
		// All entries have the level info.
		return outside || level == "warn" || level == "error" || !strings.Contains(e.Message, q.Get("search"))
	})
	if backward {
		slices.Reverse(all)
	}
	tm.write(w, r, http.StatusOK, struct {
		Logs []logEntry `json:"logs"`
	}{append([]logEntry{}, all[:min(limit, len(all))]...)})
	return nil
}
