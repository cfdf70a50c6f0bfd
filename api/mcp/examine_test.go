package mcp_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/mcp"
)

// transcriptOfErrors lists messages that the protocol does not allow, with their responses. An
// empty response means that the server sends no response.
var transcriptOfErrors = []struct{ message, answer string }{
	{`{"jsonrpc":"2.0","id":7,"method":"tools/everything"}`, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"method not found: \"tools/everything\""}}`},
	{`{"jsonrpc":"2.0","id":"a\"b","method":"nothing","params":[1]}`, `{"jsonrpc":"2.0","id":"a\"b","error":{"code":-32601,"message":"method not found: \"nothing\""}}`},
	{`[{"jsonrpc":"2.0","id":1,"method":"nothing"},{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/nothing"}]`, `[{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: \"nothing\""}},{"jsonrpc":"2.0","id":2,"result":{}}]`},
	{`{"jsonrpc":"2.0","method":"notifications/nothing"}`, ``},
	{`{"jsonrpc":"2.0","method":"tools/list"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"missing id for \"tools/list\""}}`},
	{`{"jsonrpc":"2.0","id":null,"method":"nothing"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"missing id for \"nothing\""}}`},
	{`{"jsonrpc":"2.0","id":8,"method":"notifications/cancelled"}`, `{"jsonrpc":"2.0","id":8,"error":{"code":-32600,"message":"unexpected id for \"notifications/cancelled\""}}`},
	{`{"jsonrpc":"2.0","id":9,"method":"tools/call"}`, `{"jsonrpc":"2.0","id":9,"error":{"code":-32600,"message":"missing required \"params\""}}`},
	{`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"ping"}]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"missing id for \"ping\""}}`},
	{`{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not JSON"}}`},
	{`[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"there is nothing in the batch"}}`},
	{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is not one of JSON-RPC 2.0"}}`},
	{`[{"jsonrpc":"2.0","method":"notifications/nothing"},{"jsonrpc":"2.0","method":"notifications/nothing"}]`, ``},
	{`{"jsonrpc":"2.0","id":11,"method":"resources/read","params":{"uri":"brig://sandboxes/nobodys/log"}}`, `{"jsonrpc":"2.0","id":11,"error":{"code":-32002,"message":"no sandbox \"nobodys\" (SB013)\nhint: list sandboxes","data":{"code":"SB013","kind":"not_found","message":"no sandbox \"nobodys\"","hint":"list sandboxes"}}}`},
	{`{"jsonrpc":"2.0","id":10,"method":"ping"}`, `{"jsonrpc":"2.0","id":10,"result":{}}`},
}

const beginWithBatches = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"tests","version":"1"}}}`

// Messages that the protocol does not allow get the same responses over HTTP and on streams.
func TestProtocolErrorsAreEqualOnAllTransports(t *testing.T) {
	t.Run("stream", func(t *testing.T) {
		in, write := io.Pipe()
		read, out := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- mcp.Serve(t.Context(), mcp.Options{Service: newStub(), Version: "1"}, in, out) }()
		answers := bufio.NewScanner(read)
		say := func(message string) {
			if _, err := io.WriteString(write, message+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		say(beginWithBatches)
		if !answers.Scan() {
			t.Fatal(answers.Err())
		}
		for _, c := range transcriptOfErrors {
			if say(c.message); c.answer != "" && (!answers.Scan() || answers.Text() != c.answer) {
				t.Errorf("%s: %s", c.message, answers.Text())
			}
		}
		write.Close()
		if err := receive(t, served, "the end"); err != nil {
			t.Error(err)
		}
	})
	t.Run("HTTP", func(t *testing.T) {
		srv, _ := serve(t, newStub(), nil)
		session := ""
		say := func(message string) (*http.Response, string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+mcp.Path, strings.NewReader(message))
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + annsKey, "Mcp-Session-Id": session} {
				if v != "" {
					req.Header.Set(k, v)
				}
			}
			return transcript.Fetch(t, req)
		}
		resp, _ := say(beginWithBatches)
		session = resp.Header.Get("Mcp-Session-Id")
		for _, c := range transcriptOfErrors {
			resp, body := say(c.message)
			if got := readResponse(t, resp, body); got != c.answer {
				t.Errorf("%s: %s %s", c.message, resp.Status, body)
			}
		}
	})
}

// readResponse returns the protocol message in an HTTP response in the format of a stream: the
// events of a batch are one array.
func readResponse(t *testing.T, resp *http.Response, body string) string {
	t.Helper()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		return strings.TrimSpace(body)
	}
	var events []json.RawMessage
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.TrimSpace(data) != "" {
			events = append(events, json.RawMessage(strings.TrimSpace(data)))
		}
	}
	if len(events) == 1 {
		return string(events[0])
	}
	if strings.Contains(string(events[0]), `"id":2`) {
		events[0], events[1] = events[1], events[0] // the order depends on the calls
	}
	b, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
