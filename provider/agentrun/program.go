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

// wrapped is a program in code that runs it and says how it ended: behind a
// mark that is another one each time, so that no output is taken for it. What it
// writes, and the ending if it is long, are in files whose names begin with kept.
type wrapped struct{ code, mark, kept string }

// event is one thing that code did.
type event struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Status string `json:"status"`
}

// ending is what a wrapped program says behind its mark.
type ending struct {
	Code      int             `json:"code"`
	Value     json.RawMessage `json:"value"` // nil for none
	Error     *brig.ProgramError
	Dir       string   `json:"dir"`
	Artifacts []string `json:"artifacts"`
	Stdout    stream   `json:"stdout"`
	Stderr    stream   `json:"stderr"`
}

// stream is what was kept of one: its head, its tail, and how long it was.
type stream struct{ brig.Output }

// UnmarshalJSON implements json.Unmarshaler.
func (s *stream) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&s.Head, &s.Tail, &s.Total})
}

func wrap(p brig.Program) wrapped {
	w := wrapped{mark: "brig:" + rand.Text(), kept: "/tmp/brig-" + rand.Text()}
	limit := p.Limits.Output
	if limit <= 0 {
		limit = brig.DefaultBounds().Default.Output
	}
	order := map[string]any{"source": p.Code, "mark": w.mark, "kept": w.kept, "limit": limit, "arguments": nil, "artifacts": p.Artifacts, "extensions": extensions()}
	if len(p.Arguments) > 0 {
		order["arguments"] = p.Arguments
	}
	text, wrapper := []byte("{}"), pythonWrap
	if b, err := json.Marshal(order); err == nil {
		text = b // arguments that are no JSON were refused long ago
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

// settle makes of what code did the outcome of its program. It returns the
// ending, if there is one.
func (p *Provider) settle(ctx context.Context, box string, w wrapped, o *brig.Outcome, prog brig.Program, said []event, limit time.Duration) *ending {
	var stdout, stderr, complaint []byte
	late := o.Duration >= limit
	for _, e := range said {
		switch e.Type {
		case "stdout":
			stdout = append(stdout, e.Text...)
		case "stderr":
			stderr = append(stderr, e.Text...)
		case "error":
			complaint = append(complaint, e.Text...)
			lower := strings.ToLower(e.Text)
			late = late || strings.Contains(lower, "timed out") || strings.Contains(lower, "timeout")
		case "endOfExecution":
			late = late || e.Status == "timeout"
		}
	}
	end := w.ending(stdout)
	if end == nil {
		end = parseEnding(p.left(ctx, box, w.kept+"-end", nil))
	}
	if end != nil {
		o.Stdout, o.Stderr = end.Stdout.Output, end.Stderr.Output
		o.ExitCode, o.Value, o.Error = end.Code&0xff, end.Value, end.Error
		if o.Error != nil {
			o.Value, o.Error.Code, o.ExitCode = nil, "", max(o.ExitCode, 1)
		}
		return end
	}
	// What it wrote is in its files; what the service says of it is less.
	stdout, stderr = p.left(ctx, box, w.kept+"-out", stdout), p.left(ctx, box, w.kept+"-err", stderr)
	if late {
		took := o.Duration
		remote.TimedOut(o, limit.String())
		o.Duration = took
	} else {
		o.ExitCode = 1
		if o.Error = remote.Exception(prog.Language, string(complaint)); o.Error == nil {
			o.Error = &brig.ProgramError{Name: "Lost", Message: "the interpreter ended without a word", Traceback: brig.Clip(string(complaint), 4000)}
		}
		stderr = append(stderr, complaint...)
	}
	o.Stdout, o.Stderr = remote.Output(stdout, prog.Limits.Output), remote.Output(stderr, prog.Limits.Output)
	return nil
}

// left is what a file of a program has that said nothing of its end, or else
// what is known otherwise.
func (p *Provider) left(ctx context.Context, box, file string, otherwise []byte) []byte {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), margin)
	defer cancel()
	b, err := p.download(ctx, box, file)
	if err != nil {
		return otherwise
	}
	return b
}

// ending finds the ending in what was written.
func (w wrapped) ending(stdout []byte) *ending {
	mark := []byte(w.mark + ":")
	from := bytes.LastIndex(stdout, mark)
	if from < 0 {
		return nil
	}
	rest, _, whole := bytes.Cut(stdout[from+len(mark):], []byte(";"))
	text, err := base64.StdEncoding.DecodeString(string(rest))
	if !whole || err != nil {
		return nil
	}
	return parseEnding(text)
}

// parseEnding reads an ending; nil if it is none.
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
	asked := 0 // the names are the program's own, and may be of nothing
	for _, name := range end.Artifacts {
		if asked == brig.MaxArtifacts || !brig.ArtifactName(name) {
			o.Skipped = append(o.Skipped, name)
			continue
		}
		asked++
		a, err := p.download(ctx, box, path.Join(end.Dir, name))
		if err != nil || len(a) > brig.MaxArtifactSize {
			p.site.Log.WarnContext(ctx, "an artifact was not fetched", "there", box, "bytes", len(a), "err", err)
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
