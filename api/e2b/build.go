package e2b

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/builder"
)

// builds serves the builds of the tenants' templates.
type builds struct {
	*env
	tokens *tokens
}

// handle returns a handler for a route that needs the builder.
func (b *builds) handle(f func(w http.ResponseWriter, r *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if b.Builder == nil {
			return errUnsupported("building templates")
		}
		return f(w, r)
	}
}

// reads is like handle, for a route that reads with the right to op. The builder itself checks the rights
// to changes.
func (b *builds) reads(op brig.Op, f func(w http.ResponseWriter, r *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return b.handle(b.checked(op, f))
}

// checked returns a handler that calls f if the caller may call op, which concerns no sandbox.
func (e *env) checked(op brig.Op, f func(w http.ResponseWriter, r *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := httpapi.CheckCall(r.Context(), e.Service, "", op); err != nil {
			return err
		}
		return f(w, r)
	}
}

// requestedBuild is the response to a request for a build.
type requestedBuild struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Public     bool     `json:"public"`
	Names      []string `json:"names"`
	Tags       []string `json:"tags"`
	Aliases    []string `json:"aliases"`
}

// request creates a build, which waits for its files and its start.
func (b *builds) request(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name     string   `json:"name"`
		Alias    string   `json:"alias"`
		Tags     []string `json:"tags"`
		CPUCount float64  `json:"cpuCount"`
		MemoryMB int64    `json:"memoryMB"`
		// MinFreeDiskMB is the free space after the steps. It is best effort, as in E2B.
		MinFreeDiskMB int64 `json:"minFreeDiskMb"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Name == "" {
		in.Name = in.Alias
	}
	if in.Name == "" {
		return brig.InvalidField("name", "it is required")
	}
	in.Name = withoutNamespace(r.Context(), in.Name)
	if in.CPUCount < 0 {
		return brig.InvalidField("cpuCount", "%g is negative", in.CPUCount)
	}
	if in.MemoryMB < 0 || in.MemoryMB > 1<<30 {
		return brig.InvalidField("memoryMB", "%d is out of bounds", in.MemoryMB)
	}
	if in.MinFreeDiskMB < 0 || in.MinFreeDiskMB > 1<<30 {
		return brig.InvalidField("minFreeDiskMb", "%d is out of bounds", in.MinFreeDiskMB)
	}
	t, x, err := b.Builder.Request(r.Context(), builder.Request{
		Name: in.Name, Tags: in.Tags, CPUs: in.CPUCount, Memory: in.MemoryMB * brig.MiB, FreeDisk: in.MinFreeDiskMB * brig.MiB,
	})
	if err != nil {
		return err
	}
	b.write(w, r, http.StatusAccepted, requestedBuild{
		TemplateID: t.ID, BuildID: x.ID, Names: []string{t.Name}, Tags: x.Tags, Aliases: []string{t.Name},
	})
	return nil
}

// registry is the registry of an image with its credentials.
type registry struct {
	Type     string `json:"type"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// start starts a build.
func (b *builds) start(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		FromImage         string    `json:"fromImage"`
		FromTemplate      string    `json:"fromTemplate"`
		FromImageRegistry *registry `json:"fromImageRegistry"`
		Force             bool      `json:"force"`
		Steps             []struct {
			Type      string   `json:"type"`
			Args      []string `json:"args"`
			Force     bool     `json:"force"`
			FilesHash string   `json:"filesHash"`
		} `json:"steps"`
		StartCmd string `json:"startCmd"`
		ReadyCmd string `json:"readyCmd"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	p := builder.Plan{Image: in.FromImage, Template: withoutNamespace(r.Context(), in.FromTemplate), Start: in.StartCmd, Ready: in.ReadyCmd, Force: in.Force}
	if reg := in.FromImageRegistry; reg != nil {
		if reg.Type != "registry" {
			return errUnsupported("a registry of the type " + strconv.Quote(brig.Clip(reg.Type, 40)))
		}
		p.Username, p.Password = reg.Username, reg.Password
	}
	for _, s := range in.Steps {
		p.Steps = append(p.Steps, builder.Step{Kind: builder.StepKind(s.Type), Args: s.Args, Files: s.FilesHash, Force: s.Force})
	}
	if err := b.Builder.Start(r.Context(), param(r, "template"), param(r, "build"), p); err != nil {
		return err
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// buildLogEntry is a line of a build's log.
type buildLogEntry struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

// buildReason is the reason of a failed build.
type buildReason struct {
	Message    string          `json:"message"`
	Step       string          `json:"step,omitempty"`
	LogEntries []buildLogEntry `json:"logEntries"`
}

// maxLogEntries is the maximum number of lines in a response, which is also the default.
const maxLogEntries = 100

// logRanks orders the levels of logs.
var logRanks = map[string]int{"debug": 0, "info": 1, "warn": 2, "error": 3}

// entries returns the lines that have at least a level.
func entries(lines []brig.BuildLine, level string) []buildLogEntry {
	out := []buildLogEntry{}
	for _, l := range lines {
		if logRanks[l.Level] >= logRanks[level] {
			out = append(out, buildLogEntry{Timestamp: l.Time, Level: l.Level, Message: l.Text, Step: l.Step})
		}
	}
	return out
}

// status describes a build, with the part of its log that the client does not have yet.
func (b *builds) status(w http.ResponseWriter, r *http.Request) error {
	offset, limit, level, err := logQuery(r, "logsOffset")
	if err != nil {
		return err
	}
	x, err := b.Builder.Build(r.Context(), param(r, "template"), param(r, "build"))
	if err != nil {
		return err
	}
	lines := entries(x.Log, level)
	lines = lines[min(offset, len(lines)):] // clients count the lines that they have received
	lines = lines[:min(limit, len(lines))]
	out := struct {
		TemplateID string          `json:"templateID"`
		BuildID    string          `json:"buildID"`
		Status     string          `json:"status"`
		Logs       []string        `json:"logs"`
		LogEntries []buildLogEntry `json:"logEntries"`
		Reason     *buildReason    `json:"reason,omitempty"`
	}{x.Template, x.ID, string(x.Status), []string{}, lines, nil}
	if f := x.Failure; f != nil {
		out.Reason = &buildReason{Message: f.Message, Step: f.Step, LogEntries: []buildLogEntry{}}
	}
	b.write(w, r, http.StatusOK, out)
	return nil
}

// logs returns the log of a build, or a page of it.
func (b *builds) logs(w http.ResponseWriter, r *http.Request) error {
	_, limit, level, err := logQuery(r, "")
	if err != nil {
		return err
	}
	x, err := b.Builder.Build(r.Context(), param(r, "template"), param(r, "build"))
	if err != nil {
		return err
	}
	lines := x.Log
	q := r.URL.Query()
	if text := q.Get("cursor"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return brig.InvalidField("cursor", "it is not a number of milliseconds")
		}
		lines = page(lines, time.UnixMilli(ms), q.Get("direction") == "backward")
	}
	out := entries(lines, level)
	if n := len(out); n > limit && q.Get("direction") == "backward" {
		out = out[n-limit:]
	}
	b.write(w, r, http.StatusOK, struct {
		Logs []buildLogEntry `json:"logs"`
	}{out[:min(limit, len(out))]})
	return nil
}

// page returns the lines from at on, or those before it if backward is true.
func page(lines []brig.BuildLine, at time.Time, backward bool) []brig.BuildLine {
	for i, l := range lines {
		if !l.Time.Before(at) {
			if backward {
				return lines[:i]
			}
			return lines[i:]
		}
	}
	if backward {
		return lines
	}
	return nil
}

// logQuery returns the part of a log that a request asks for.
func logQuery(r *http.Request, offsetName string) (offset, limit int, level string, err error) {
	q := r.URL.Query()
	number := func(name string, value, most int) int {
		text := q.Get(name)
		if text == "" || err != nil {
			return value
		}
		n, perr := strconv.Atoi(text)
		if perr != nil || n < 0 {
			err = brig.InvalidField(name, "it is not a number from 0 on")
		}
		return min(n, most)
	}
	offset = number(offsetName, 0, 1<<30)
	limit = number("limit", maxLogEntries, maxLogEntries)
	level = strings.ToLower(q.Get("level"))
	if _, ok := logRanks[level]; !ok && level != "" && err == nil {
		err = brig.InvalidField("level", "it is not debug, info, warn or error")
	}
	return offset, limit, level, err
}
