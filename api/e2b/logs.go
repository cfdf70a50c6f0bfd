package e2b

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

// fields are the fields of every entry.
var fields = map[string]string{"logger": logger}

// entries returns up to limit entries of a sandbox's log that selected accepts: the first
// ones, or the last ones if backward is set, newest first. Every line gets a different
// time, so that a client that follows the log can identify its position. Lines of the same
// millisecond get consecutive times. A log can have a line for each of its bytes, so only
// the entries of the response are in memory.
func (tm *telemetry) entries(ctx context.Context, s *brig.Sandbox, limit int, backward bool, selected func(logEntry) bool) ([]logEntry, error) {
	log, err := tm.Service.Logs(ctx, string(s.ID), brig.LogOptions{Times: true})
	if err != nil {
		return nil, endedError(s.ID, err)
	}
	defer log.Close()
	out := []logEntry{}
	lines := bufio.NewReaderSize(io.LimitReader(log, maxLog), 64<<10)
	last := s.Created.UTC().Truncate(time.Millisecond).Add(-time.Millisecond)
	for oldest := 0; limit > 0 && (backward || len(out) < limit); {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(line) == 0 {
			if oldest > 0 {
				out = slices.Concat(out[oldest:], out[:oldest])
			}
			break
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		at, message, _ := brig.CutLogTime(strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "\uFFFD"))
		if !at.After(last) {
			at = last.Add(time.Millisecond)
		}
		last = at
		e := logEntry{Timestamp: at, Level: levelOf(message), Message: message, Fields: fields}
		switch {
		case !selected(e):
		case len(out) < limit:
			out = append(out, e)
		default:
			out[oldest] = e
			oldest = (oldest + 1) % limit
		}
	}
	if backward {
		slices.Reverse(out)
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
	all, err := tm.entries(r.Context(), s, limit, false, func(e logEntry) bool { return !e.Timestamp.Before(start) })
	if err != nil {
		return err
	}
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
	}{lines, all})
	return nil
}

func (tm *telemetry) logsV2(w http.ResponseWriter, r *http.Request) error {
	s, err := tm.finder.find(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	from, hasCursor, err := millis(q, "cursor")
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
	if _, ok := logRanks[level]; !ok && level != "" {
		return brig.InvalidField("level", "give debug, info, warn or error")
	}
	all, err := tm.entries(r.Context(), s, limit, backward, func(e logEntry) bool {
		outside := hasCursor && (backward && e.Timestamp.After(from) || !backward && e.Timestamp.Before(from))
		return !outside && logRanks[e.Level] >= logRanks[level] && strings.Contains(e.Message, q.Get("search"))
	})
	if err != nil {
		return err
	}
	tm.write(w, r, http.StatusOK, struct {
		Logs []logEntry `json:"logs"`
	}{all})
	return nil
}
