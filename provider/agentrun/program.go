package agentrun

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

var (
	//go:embed wrap/program.py
	pythonWrap string
	//go:embed wrap/program.js
	nodeWrap string
)

// wrapped is a program embedded in code that runs it and reports how it ended.
// The report follows a random mark, so that no output can be mistaken for the
// report. The output, and a report that is too long, are in files whose names
// begin with kept.
type wrapped struct{ code, mark, kept string }

// event is one result of executed code: output, a value or an error.
type event struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Status string `json:"status"`
}

// events are all events of an execution. The limit is a multiple of a program's
// output limit, because the service encodes the output.
type events []event

const maxEvents = 100_000

// UnmarshalJSON implements json.Unmarshaler.
func (e *events) UnmarshalJSON(b []byte) (err error) {
	*e, err = remote.DecodeList[event](b, maxEvents)
	return err
}

// names decodes the names of a program's artifacts, up to a maximum number.
type names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *names) UnmarshalJSON(b []byte) (err error) {
	*n, err = remote.DecodeList[string](b, maxNames)
	return err
}

const maxNames = 10_000

// ending is the report of a wrapped program.
type ending struct {
	Code      int             `json:"code"`
	Value     json.RawMessage `json:"value"` // nil for no value
	Error     *brig.ProgramError
	Dir       string `json:"dir"`
	Artifacts names  `json:"artifacts"`
	Stdout    stream `json:"stdout"`
	Stderr    stream `json:"stderr"`
}

// stream is the captured part of one stream: head, tail and length.
type stream struct{ brig.Output }

// UnmarshalJSON implements json.Unmarshaler.
func (s *stream) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&s.Head, &s.Tail, &s.Total})
}

func wrap(p brig.Program) wrapped {
	w := wrapped{mark: "brig:" + rand.Text(), kept: "/tmp/brig-" + rand.Text()}
	limit := p.Limits.Output
	if limit <= 0 {
		limit = brig.DefaultLimitRange().Default.Output
	}
	order := map[string]any{"source": p.Code, "mark": w.mark, "kept": w.kept, "limit": limit, "arguments": nil, "artifacts": p.Artifacts, "extensions": extensions()}
	if len(p.Arguments) > 0 {
		order["arguments"] = p.Arguments
	}
	text, wrapper := []byte("{}"), pythonWrap
	if b, err := json.Marshal(order); err == nil {
		text = b // invalid JSON arguments were rejected before
	}
	if p.Language == brig.JavaScript {
		wrapper = nodeWrap
	}
	w.code = strings.Replace(wrapper, "BRIG_ORDER", base64.StdEncoding.EncodeToString(text), 1)
	return w
}

func extensions() []string {
	var out []string
	for e := range brig.ArtifactTypes {
		out = append(out, e)
	}
	slices.Sort(out)
	return out
}

// fillOutcome turns the events of an execution into the outcome of its program.
// It returns the program's report, if it sent one.
func (p *Provider) fillOutcome(ctx context.Context, box string, w wrapped, o *brig.Outcome, prog brig.Program, results []event, limit time.Duration) *ending {
	var stdout, stderr, errorText []byte
	timedOut := o.Duration >= limit
	for _, e := range results {
		switch e.Type {
		case "stdout":
			stdout = append(stdout, e.Text...)
		case "stderr":
			stderr = append(stderr, e.Text...)
		case "error":
			errorText = append(errorText, e.Text...)
			lower := strings.ToLower(e.Text)
			timedOut = timedOut || strings.Contains(lower, "timed out") || strings.Contains(lower, "timeout")
		case "endOfExecution":
			timedOut = timedOut || e.Status == "timeout"
		}
	}
	end := w.findReport(stdout)
	if end == nil {
		end = parseEnding(p.readLeftover(ctx, box, w.kept+"-end", nil))
	}
	if end != nil {
		o.Stdout, o.Stderr = end.Stdout.Output, end.Stderr.Output
		o.ExitCode, o.Value, o.Error = end.Code&0xff, end.Value, end.Error
		if o.Error != nil {
			o.Value, o.Error.Code, o.ExitCode = nil, "", max(o.ExitCode, 1)
		}
		return end
	}
	// The files contain the whole output, and the service's response only a
	// part of it.
	stdout, stderr = p.readLeftover(ctx, box, w.kept+"-out", stdout), p.readLeftover(ctx, box, w.kept+"-err", stderr)
	if timedOut {
		took := o.Duration
		remote.SetTimedOut(o, limit.String())
		o.Duration = took
	} else {
		o.ExitCode = 1
		if o.Error = remote.ParseException(prog.Language, string(errorText)); o.Error == nil {
			o.Error = &brig.ProgramError{Name: "Lost", Message: "the interpreter ended without a word", Traceback: brig.Clip(string(errorText), 4000)}
		}
		stderr = append(stderr, errorText...)
	}
	o.Stdout, o.Stderr = remote.NewOutput(stdout, prog.Limits.Output), remote.NewOutput(stderr, prog.Limits.Output)
	return nil
}

// readLeftover reads an output file of a program that did not report its end.
// If the file cannot be read, it returns the value of otherwise.
func (p *Provider) readLeftover(ctx context.Context, box, file string, otherwise []byte) []byte {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerSlack)
	defer cancel()
	b, err := p.download(ctx, box, file)
	if err != nil {
		return otherwise
	}
	return b
}

// findReport finds the report in the output.
func (w wrapped) findReport(stdout []byte) *ending {
	mark := []byte(w.mark + ":")
	from := bytes.LastIndex(stdout, mark)
	if from < 0 {
		return nil
	}
	rest, _, complete := bytes.Cut(stdout[from+len(mark):], []byte(";"))
	text, err := base64.StdEncoding.DecodeString(string(rest))
	if !complete || err != nil {
		return nil
	}
	return parseEnding(text)
}

// parseEnding parses a report. It returns nil if the text is not a report.
func parseEnding(text []byte) *ending {
	end := &ending{}
	if json.Unmarshal(text, end) != nil {
		return nil
	}
	return end
}

// collect fetches the artifacts.
func (p *Provider) collect(ctx context.Context, box string, o *brig.Outcome, end *ending) {
	if end == nil {
		return
	}
	attempts := 0 // counts attempts, because the program chose the names and the files may not exist
	for _, name := range end.Artifacts {
		if attempts == brig.MaxArtifacts || !brig.IsArtifactName(name) {
			o.Skipped = append(o.Skipped, name)
			continue
		}
		attempts++
		a, err := p.download(ctx, box, path.Join(end.Dir, name))
		if err != nil || len(a) > brig.MaxArtifactSize {
			p.env.Log.WarnContext(ctx, "failed to fetch an artifact", "there", box, "bytes", len(a), "err", err)
			o.Skipped = append(o.Skipped, name)
			continue
		}
		o.Artifacts = append(o.Artifacts, brig.File{Path: name, Data: a})
	}
}

func (p *Provider) download(ctx context.Context, box, at string) ([]byte, error) {
	a, err := p.service.exchange(ctx, p.service.data, remote.Request{
		Operation: "download", Method: http.MethodGet, Path: "/sandboxes/" + box + "/filesystem/download",
		Query: url.Values{"path": {at}}, Sign: p.service.creds.signData,
	}, nil)
	if err != nil {
		return nil, err
	}
	if a.Body == nil {
		return nil, errors.New("there is no body")
	}
	return a.Body, nil
}
