package letta

import (
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
	"github.com/brig-run/brig/tool"
)

// none is what Letta says where a message of an agent's would have an id.
const none = "null"

// run runs a tool from its source.
func (d *Door) run(r *http.Request, body []byte) (any, error) {
	var asked wire.LettaRun
	if err := read(body, &asked); err != nil {
		return nil, err
	}
	t, err := fromRun(asked)
	if err != nil {
		return nil, err
	}
	res, err := d.Service.RunTool(r.Context(), t)
	if err != nil {
		return nil, err
	}
	return toReturn(res, d.Now()), nil
}

// runOfAgent says that there are no agents here, to whom a tool could belong.
func (d *Door) runOfAgent(*http.Request, []byte) (any, error) {
	return nil, brig.Errorf(brig.NotFound, "there are no agents here, and no tools of theirs").
		WithHint("send the tool's source to %s", run)
}

func fromRun(asked wire.LettaRun) (brig.Tool, error) {
	t := brig.Tool{
		Source: asked.Source, Arguments: asked.Arguments, Env: asked.Env,
		Schema: present(asked.Schema), ArgumentSchema: present(asked.ArgsSchema),
		State: present(asked.State), Limit: asked.Limit, Timeout: time.Duration(asked.TimeoutMS) * time.Millisecond,
	}
	switch {
	case asked.Source == "":
		return t, complain("missing", "Field required", "source_code")
	case len(present(asked.Arguments)) == 0:
		return t, complain("missing", "Field required", "args")
	}
	if asked.Name != nil {
		t.Name = *asked.Name
	}
	if asked.SourceType != nil {
		language, ok := map[string]brig.Language{"": "", "python": brig.Python, "typescript": brig.TypeScript}[*asked.SourceType]
		if !ok {
			return t, brig.InvalidField("source_type", "Tool source type is not supported at this time. Found %s", brig.Clip(*asked.SourceType, 80)).
				WithHint("use python or typescript")
		}
		t.Language = language
	}
	for _, p := range asked.Python {
		t.Python = append(t.Python, tool.PipPackage(p).Python())
	}
	for _, p := range asked.Node {
		t.Node = append(t.Node, tool.PipPackage(p).Node())
	}
	return t, nil
}

// present is a value that is there: null is none.
func present(raw []byte) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func toReturn(res *brig.ToolResult, now time.Time) wire.LettaReturn {
	status := "success"
	if res.Error != nil {
		status = "error"
	}
	out := wire.LettaReturn{
		ID: none, ToolCallID: none, Date: now.UTC(), MessageType: "tool_return_message",
		ToolReturn: res.Text, Status: status, Stdout: lines(res.Stdout), Stderr: lines(res.Stderr),
		Value: res.Value, State: res.State, Fingerprint: res.Fingerprint, Sandbox: res.Sandbox, Reused: res.Reused, Error: res.Error,
		ExitCode: res.ExitCode, TimedOut: res.TimedOut, DurationMS: res.Duration.Milliseconds(),
	}
	if res.Name != "" {
		out.Name = &res.Name
	}
	out.ToolReturns = []wire.LettaOneOut{{
		Type: "tool", ToolReturn: res.Text, Status: status, ToolCallID: none, Stdout: out.Stdout, Stderr: out.Stderr,
	}}
	return out
}

// lines is an output as Letta has it: one text, or none.
func lines(o brig.Output) []string {
	if o.Total == 0 {
		return []string{}
	}
	text := string(o.Head)
	if o.Truncated() {
		text += "\n[… output was left out …]\n"
	}
	text += string(o.Tail)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return []string{text}
}
