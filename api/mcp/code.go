package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

type codeIn struct {
	Code      string            `json:"code" jsonschema:"the source"`
	Language  string            `json:"language,omitempty" jsonschema:"python (the default), javascript, typescript or bash; in a sandbox also the name of a Jupyter kernel that its image has"`
	Sandbox   string            `json:"sandbox,omitempty" jsonschema:"the sandbox to run it in, where variables stay for the next call; without one it runs in a fresh sandbox that is gone afterwards"`
	Context   string            `json:"context,omitempty" jsonschema:"the id of one of the sandbox's contexts; default the one that belongs to the language"`
	Arguments object            `json:"arguments,omitempty" jsonschema:"in a fresh sandbox: main is called with these, and what it returns is the result"`
	Files     []fileIn          `json:"files,omitempty" jsonschema:"in a fresh sandbox: files to put into /workspace before"`
	Image     string            `json:"image,omitempty" jsonschema:"in a fresh sandbox: its image"`
	Hosts     []string          `json:"allow_hosts,omitempty" jsonschema:"in a fresh sandbox: hosts that it may connect to, for example api.example.com or *.example.com"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"variables of the environment"`
	Timeout   float64           `json:"timeout_seconds,omitempty" jsonschema:"wall time; default 30"`
}

type fileIn struct {
	Path string `json:"path" jsonschema:"relative to /workspace"`
	Text string `json:"text,omitempty"`
	Data []byte `json:"data_b64,omitempty" jsonschema:"the content, if it is not text"`
}

// runOutput is the common part of the responses for all finished programs.
type runOutput struct {
	Sandbox     string  `json:"sandbox,omitempty"`
	Stdout      string  `json:"stdout"`
	Stderr      string  `json:"stderr"`
	Truncated   bool    `json:"truncated,omitempty" jsonschema:"something is left out in the middle of stdout or stderr"`
	ExitCode    int     `json:"exit_code"`
	TimedOut    bool    `json:"timed_out,omitempty"`
	OutOfMemory bool    `json:"out_of_memory,omitempty"`
	Seconds     float64 `json:"seconds" jsonschema:"how long it took"`
}

type codeOut struct {
	runOutput
	Context     string          `json:"context,omitempty"`
	Result      json.RawMessage `json:"result,omitempty" jsonschema:"what main returned, or the text of the last expression's value"`
	Error       *codeError      `json:"error,omitempty"`
	Interrupted bool            `json:"interrupted,omitempty"`
	Lost        bool            `json:"lost,omitempty" jsonschema:"the interpreter and its variables are gone"`
	Artifacts   []string        `json:"artifacts,omitempty" jsonschema:"the files that came back"`
	Skipped     []string        `json:"skipped,omitempty" jsonschema:"artifacts that were too many or too large"`

	shown []mcp.Content
}

type codeError struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
	Code      string `json:"code,omitempty" jsonschema:"of a verdict: SB005 out of time, SB006 out of memory"`
	Hint      string `json:"hint,omitempty"`
}

// show implements presenter.
func (o *codeOut) show() []mcp.Content {
	var b strings.Builder
	o.describe(&b)
	if o.Result != nil && string(o.Result) != "null" {
		var text string
		if json.Unmarshal(o.Result, &text) != nil {
			text = string(o.Result)
		}
		writeLine(&b, "", text)
	}
	if e := o.Error; e != nil {
		text := strings.TrimRight(cmp.Or(e.Traceback, e.Name+": "+e.Message), " \n")
		// An interpreter writes the traceback to stderr, too.
		if !strings.HasSuffix(strings.TrimRight(o.Stderr, " \n"), text) {
			writeLine(&b, "", text)
		}
		writeLine(&b, "hint: ", e.Hint)
	}
	if o.Lost {
		writeLine(&b, "", "[the interpreter was ended; its variables are gone]")
	}
	return append([]mcp.Content{&mcp.TextContent{Text: b.String()}}, o.shown...)
}

// describe writes the output of a program and its failure, if it failed.
func (r *runOutput) describe(b *strings.Builder) {
	writeLine(b, "", r.Stdout)
	if r.Stderr != "" {
		writeLine(b, "[stderr]\n", r.Stderr)
	}
	switch {
	case r.TimedOut:
		writeLine(b, "", "[its time ran out]")
	case r.OutOfMemory:
		writeLine(b, "", "[its memory ran out]")
	case r.ExitCode != 0:
		fmt.Fprintf(b, "[exit code %d]\n", r.ExitCode)
	}
}

// writeLine writes text as a line with a prefix. It writes nothing if text is empty.
func writeLine(b *strings.Builder, prefix, text string) {
	if text != "" {
		b.WriteString(prefix + strings.TrimSuffix(text, "\n") + "\n")
	}
}

func (d *toolServer) runCode(ctx context.Context, req *mcp.CallToolRequest, in *codeIn) (*codeOut, error) {
	if in.Sandbox != "" {
		return d.runInContext(ctx, req, in)
	}
	if in.Context != "" {
		return nil, brig.InvalidField("context", "it belongs to a sandbox").WithHint("give sandbox, too")
	}
	p, err := in.toProgram()
	if err != nil {
		return nil, err
	}
	o, err := d.runOnce(ctx, req, p)
	if err != nil {
		return nil, err
	}
	out := &codeOut{runOutput: fromResult(&o.Result), Result: o.Value, Skipped: o.Skipped}
	out.Sandbox = o.Sandbox
	out.Error = fromFailure(o.Error)
	for _, f := range o.Artifacts {
		out.Artifacts = append(out.Artifacts, f.Path)
		out.shown = append(out.shown, fileContent("brig://runs/"+o.Sandbox+"/artifacts/"+(&url.URL{Path: f.Path}).EscapedPath(), f.Data))
	}
	return out, nil
}

// runOnce runs a program in a new sandbox and reports progress.
func (d *toolServer) runOnce(ctx context.Context, req *mcp.CallToolRequest, p brig.Program) (*brig.Outcome, error) {
	reporter, stop := reportProgress(ctx, req)
	defer stop()
	var sio brig.IO
	if reporter != nil {
		sio.Stdout, sio.Stderr = reporter, reporter
	}
	return d.service.Run(ctx, p, sio)
}

func (in *codeIn) toProgram() (p brig.Program, err error) {
	if p.Timeout, err = parseSeconds("timeout_seconds", in.Timeout); err != nil {
		return p, err
	}
	p.Language, p.Code, p.Image, p.Env, p.Egress = brig.Python, in.Code, in.Image, in.Env, toEgress(in.Hosts)
	if in.Language != "" {
		if p.Language, err = brig.ParseLanguage(in.Language); err != nil {
			return p, err
		}
	}
	if in.Arguments != nil {
		if p.Arguments, err = json.Marshal(in.Arguments); err != nil {
			return p, err
		}
	}
	for i, f := range in.Files {
		data, err := f.decodeContent()
		if err != nil {
			err.Field = fmt.Sprintf("files[%d].%s", i, err.Field)
			return p, err
		}
		p.Files = append(p.Files, brig.File{Path: f.Path, Data: data})
	}
	return p, nil
}

// decodeContent returns the content of a file in the request. An error names the
// field of the file.
func (f *fileIn) decodeContent() ([]byte, *brig.Error) {
	if f.Text != "" && f.Data != nil {
		return nil, brig.InvalidField("data_b64", "there is text as well").WithHint("give text or data_b64")
	}
	if f.Data != nil {
		return f.Data, nil
	}
	return []byte(f.Text), nil
}

// toEgress returns rules that allow connections to hosts on every port.
func toEgress(hosts []string) brig.Egress {
	var e brig.Egress
	for _, h := range hosts {
		e.Rules = append(e.Rules, brig.EgressRule{Host: h})
	}
	return e
}

func (d *toolServer) runInContext(ctx context.Context, req *mcp.CallToolRequest, in *codeIn) (*codeOut, error) {
	for field, given := range map[string]bool{"arguments": in.Arguments != nil, "files": in.Files != nil, "image": in.Image != "", "allow_hosts": in.Hosts != nil} {
		if given {
			return nil, brig.InvalidField(field, "it is for a fresh sandbox").WithHint("leave it out, or leave out sandbox")
		}
	}
	c := brig.Code{Context: in.Context, Source: in.Code, Env: in.Env}
	var err error
	if c.Timeout, err = parseSeconds("timeout_seconds", in.Timeout); err != nil {
		return nil, err
	}
	if in.Language != "" {
		if c.Language, err = brig.ParseContextLanguage(in.Language); err != nil {
			return nil, err
		}
	}
	reporter, stop := reportProgress(ctx, req)
	defer stop()
	var on func(brig.CodeEvent) error
	if reporter != nil {
		on = func(e brig.CodeEvent) error {
			_, err := reporter.Write(append(e.Stdout, e.Stderr...))
			return err
		}
	}
	res, err := d.service.RunCode(ctx, in.Sandbox, c, on)
	if err != nil {
		return nil, err
	}
	return fromCode(in.Sandbox, res), nil
}

// fromCode converts displayed values to content that a client can show.
func fromCode(sandbox string, r *brig.CodeResult) *codeOut {
	out := &codeOut{Context: r.Context, Interrupted: r.Interrupted, Lost: r.Lost}
	out.Sandbox, out.TimedOut, out.OutOfMemory, out.Seconds = sandbox, r.TimedOut, r.OOMKilled, r.Duration.Seconds()
	var cut [2]bool
	out.Stdout, cut[0] = outputText(r.Stdout)
	out.Stderr, cut[1] = outputText(r.Stderr)
	out.Truncated = cut[0] || cut[1]
	if e := r.Error; e != nil {
		out.Error, out.ExitCode = &codeError{Name: e.Name, Message: e.Value, Traceback: e.Traceback}, 1
	}
	for _, rich := range r.Outputs {
		image := imageContent(rich.Data)
		if image != nil {
			out.shown = append(out.shown, image)
		}
		var text string
		if json.Unmarshal(rich.Data["text/plain"], &text) != nil {
			continue // the guest may declare a wrong type for its text
		}
		if rich.Main {
			out.Result = quote(text)
		} else if image == nil {
			out.shown = append(out.shown, &mcp.TextContent{Text: text})
		}
	}
	return out
}

// quote encodes text as JSON.
func quote(text string) json.RawMessage {
	if len(text) > maxText {
		text = brig.Clip(text, maxText)
	}
	b, err := json.Marshal(text)
	if err != nil {
		return nil // text can always be encoded
	}
	return b
}

// fromResult converts the result of a program.
func fromResult(r *brig.Result) runOutput {
	out := runOutput{ExitCode: r.ExitCode, TimedOut: r.TimedOut, OutOfMemory: r.OOMKilled, Seconds: roundSeconds(r.Duration)}
	var cut [2]bool
	out.Stdout, cut[0] = outputText(r.Stdout)
	out.Stderr, cut[1] = outputText(r.Stderr)
	out.Truncated = cut[0] || cut[1]
	return out
}

func roundSeconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }

func fromFailure(e *brig.ProgramError) *codeError {
	if e == nil {
		return nil
	}
	return &codeError{Name: e.Name, Message: e.Message, Traceback: e.Traceback, Code: e.Code, Hint: nameArgumentsIn(e.Hint)}
}
