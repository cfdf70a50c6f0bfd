package letta

import (
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/tool"
)

// none is the placeholder for the ID of an agent's message.
const none = "null"

// run runs a tool from its source.
func (d *API) run(r *http.Request, body []byte) (any, error) {
	var req v1.LettaRun
	if err := read(body, &req); err != nil {
		return nil, err
	}
	t, err := fromRun(req)
	if err != nil {
		return nil, err
	}
	res, err := d.Service.RunTool(r.Context(), t)
	if err != nil {
		return nil, err
	}
	return toReturn(res, d.Now()), nil
}

// runAgentTool responds with NotFound, because this server has no agents and
// therefore no agent tools.
func (d *API) runAgentTool(*http.Request, []byte) (any, error) {
	return nil, brig.Errorf(brig.NotFound, "this server has no agents").
		WithHint("send the tool's source to %s", run)
}

func fromRun(req v1.LettaRun) (brig.Tool, error) {
	t := brig.Tool{
		Source: req.Source, Arguments: req.Arguments, Env: req.Env,
		Schema: nullToNil(req.Schema), ArgumentSchema: nullToNil(req.ArgsSchema),
		State: nullToNil(req.State), Limit: req.Limit, Timeout: time.Duration(req.TimeoutMS) * time.Millisecond,
	}
	switch {
	case req.Source == "":
		return t, invalidFieldError("missing", "Field required", "source_code")
	case len(nullToNil(req.Arguments)) == 0:
		return t, invalidFieldError("missing", "Field required", "args")
	}
	if req.Name != nil {
		t.Name = *req.Name
	}
	if req.SourceType != nil {
		language, ok := map[string]brig.Language{"": "", "python": brig.Python, "typescript": brig.TypeScript}[*req.SourceType]
		if !ok {
			return t, brig.InvalidField("source_type", "Tool source type is not supported at this time. Found %s", brig.Clip(*req.SourceType, 80)).
				WithHint("use python or typescript")
		}
		t.Language = language
	}
	for _, p := range req.Python {
		t.Python = append(t.Python, tool.PipPackage(p).Python())
	}
	for _, p := range req.Node {
		t.Node = append(t.Node, tool.PipPackage(p).Node())
	}
	return t, nil
}

// nullToNil returns raw, or nil if raw is the JSON value null.
func nullToNil(raw []byte) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func toReturn(res *brig.ToolResult, now time.Time) v1.LettaReturn {
	status := "success"
	if res.Error != nil {
		status = "error"
	}
	out := v1.LettaReturn{
		ID: none, ToolCallID: none, Date: now.UTC(), MessageType: "tool_return_message",
		ToolReturn: res.Text, Status: status, Stdout: toLines(res.Stdout), Stderr: toLines(res.Stderr),
		Value: res.Value, State: res.State, Fingerprint: res.Fingerprint, Sandbox: res.Sandbox, Reused: res.Reused, Error: res.Error,
		ExitCode: res.ExitCode, TimedOut: res.TimedOut, DurationMS: res.Duration.Milliseconds(),
	}
	if res.Name != "" {
		out.Name = &res.Name
	}
	out.ToolReturns = []v1.LettaOneOut{{
		Type: "tool", ToolReturn: res.Text, Status: status, ToolCallID: none, Stdout: out.Stdout, Stderr: out.Stderr,
	}}
	return out
}

// toLines returns an output in Letta's format: a list with one text, or an empty
// list.
func toLines(o brig.Output) []string {
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
