package mcp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
)

// heldService is a service whose lists and logs wait until they are released.
type heldService struct {
	*stub
	held *transcript.Held
}

func (s *heldService) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	s.held.Wait()
	return &brig.Page{}, nil
}

func (s *heldService) Logs(ctx context.Context, name string, o brig.LogOptions) (io.ReadCloser, error) {
	s.held.Wait()
	return s.stub.Logs(ctx, name, o)
}

// TestLargeResponsesTakeTurns verifies that a key can receive at most four large responses at the
// same time in both kinds of protocol, however many calls it makes.
func TestLargeResponsesTakeTurns(t *testing.T) {
	tool := func(name string, args any) func(context.Context, *sdk.ClientSession) error {
		return func(ctx context.Context, c *sdk.ClientSession) error {
			res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
			if err == nil && res.IsError {
				err = fmt.Errorf("%s: %+v", name, res.Content[0])
			}
			return err
		}
	}
	for name, call := range map[string]func(context.Context, *sdk.ClientSession) error{
		"list_sandboxes": tool("list_sandboxes", map[string]any{}),
		"read_log":       tool("read_log", map[string]any{"sandbox": "box"}),
		"resources/list": func(ctx context.Context, c *sdk.ClientSession) error {
			_, err := c.ListResources(ctx, nil)
			return err
		},
		"resources/read": func(ctx context.Context, c *sdk.ClientSession) error {
			_, err := c.ReadResource(ctx, &sdk.ReadResourceParams{URI: "brig://sandboxes/box/log"})
			return err
		},
	} {
		for _, old := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s old %v", name, old), func(t *testing.T) {
				s := &heldService{newStub(), transcript.NewHeldCalls()}
				srv, _ := serve(t, s, nil)
				c := connect(t, srv.URL, annsKey, old)
				transcript.CheckTurns(t, s.held, func() error { return call(t.Context(), c) })
			})
		}
	}
}

// A request holds its turn for one large response until the client has received the response.
// Therefore, all but the first large response of a batch are refused, so that the batch does
// not wait for itself.
func TestBatchAllowsOneLargeResponse(t *testing.T) {
	srv, _ := serve(t, newStub(), nil)
	c := connect(t, srv.URL, annsKey, true)
	var calls []string
	for id := range 10 {
		calls = append(calls, fmt.Sprintf(`{"jsonrpc":"2.0","id":"b%d","method":"tools/call","params":{"name":"list_sandboxes","arguments":{}}}`, id))
	}
	code, body := post(t, srv.URL, http.MethodPost, annsKey, c.ID(), "2025-03-26", "["+strings.Join(calls, ",")+"]")
	if n := strings.Count(body, "more than one call with a large answer"); code != http.StatusOK || n < 9 || !strings.Contains(body, `"next":"more"`) {
		t.Errorf("%d, %d are refused: %s", code, n, body)
	}
}
