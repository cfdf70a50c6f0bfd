package agentrun

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

// The states of a template and a sandbox, and the code of a success.
const (
	ready        = "READY"
	codeSuccess  = "SUCCESS"
	createFailed = "CREATE_FAILED"
)

// envelope wraps every response of both planes. If the service rejects a
// request, the envelope contains the error.
type envelope struct {
	Code      string          `json:"code"`
	Message   string          `json:"message"`
	RequestID string          `json:"requestId"`
	Data      json.RawMessage `json:"data"`
}

// sandbox is the service's description of a sandbox.
type sandbox struct {
	ID     string `json:"sandboxId"`
	Status string `json:"status"`
}

// template is the service's description of a template.
type template struct {
	Name   string `json:"templateName"`
	Status string `json:"status"`
	Reason string `json:"statusReason"`
}

// service calls both planes.
type service struct {
	creds         *credentials
	data, control *remote.Client
	timeout       time.Duration // timeout of one call; 0 means callTimeout
}

// callTimeout is the default timeout of a call.
const callTimeout = time.Minute

// maxAnswer is the maximum size of a response without a program's data, in
// bytes.
const maxAnswer = 4 << 20

// callDataPlane calls the data plane. It decodes the response's data into into. If
// plain is set, the response has no envelope and is decoded as a whole.
func (s *service) callDataPlane(ctx context.Context, operation, method, path string, in, into any, plain bool) error {
	r := remote.Request{Operation: operation, Method: method, Path: "/sandboxes" + path, Sign: s.creds.signData, Max: maxAnswer}
	if operation == "execute" {
		r.Max = 0 // output and artifacts
	}
	a, err := s.exchange(ctx, s.data, r, in)
	if err != nil {
		return err
	}
	return read(operation, a, into, plain)
}

// callControlPlane makes a call of the control plane.
func (s *service) callControlPlane(ctx context.Context, action, method, path string, query url.Values, in, into any) error {
	r := remote.Request{Operation: action, Method: method, Path: "/" + controlVersion + path, Query: query, Max: maxAnswer}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode %s: %w", action, err)
		}
		r.Body = b
	}
	r.Sign = s.creds.signControl(action, r.Body)
	a, err := s.exchange(ctx, s.control, r, nil)
	if err != nil {
		return err
	}
	return read(action, a, into, false)
}

func (s *service) exchange(ctx context.Context, c *remote.Client, r remote.Request, in any) (*remote.Response, error) {
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", r.Operation, err)
		}
		r.Body = b
	}
	if r.Body != nil {
		r.Header = http.Header{"Content-Type": {"application/json"}}
	}
	callCtx, cancel := context.WithTimeout(ctx, cmp.Or(s.timeout, callTimeout))
	defer cancel()
	a, err := c.Do(callCtx, r)
	if err != nil && ctx.Err() == nil && callCtx.Err() != nil {
		return nil, brig.Errorf(brig.Unavailable, "the service does not answer %s in time", r.Operation).
			WithHint("try again in a moment, or route to another provider").Because(err)
	}
	if err == nil && a.Status >= 300 {
		err = refusalError(r.Operation, a)
	}
	return a, err
}

// read decodes a response into into.
func read(operation string, a *remote.Response, into any, plain bool) error {
	if into == nil {
		return nil
	}
	data := a.Body
	if !plain {
		var e envelope
		if err := json.Unmarshal(a.Body, &e); err != nil {
			return unexpectedResponseError(operation, err)
		}
		if e.Code != "" && e.Code != codeSuccess && e.Code != "200" {
			return refusalError(operation, a)
		}
		if data = e.Data; len(data) == 0 {
			data = a.Body // some responses have no envelope
		}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return unexpectedResponseError(operation, err)
	}
	return nil
}

func unexpectedResponseError(operation string, err error) error {
	return brig.WithRetry(brig.Errorf(brig.Unavailable, "the service sent an invalid response to %s", operation).
		WithHint("have an operator look at the provider's endpoints").Because(err), brig.RetryContained)
}

// permission returns the permission that a RAM user needs for an operation.
// Each operation of the control plane has an action of the same name.
func permission(operation string) string {
	if strings.HasSuffix(operation, "Template") || strings.HasSuffix(operation, "Templates") {
		return "agentrun:" + operation
	}
	return "agentrun:Invoke*"
}

// refusalError converts an error of the service. The status determines the kind. The
// code and the request ID are for the service's support.
func refusalError(operation string, a *remote.Response) error {
	var e envelope
	_ = json.Unmarshal(a.Body, &e) // ignore a body that is not JSON
	number := e.RequestID
	for _, h := range []string{"X-Acs-Request-Id", "X-Agentrun-Request-Id", "X-Request-Id", "X-Fc-Request-Id"} {
		number = cmp.Or(number, a.Header.Get(h))
	}
	cause := fmt.Errorf("HTTP %d: %s: %s (request %s)", a.Status, brig.Clip(e.Code, 100), brig.Clip(e.Message, 500), brig.Clip(number, 100))
	code := brig.Clip(cmp.Or(e.Code, "HTTP "+strconv.Itoa(a.Status)), 100)
	newError := func(k brig.Kind, message, hint string) *brig.Error {
		return brig.Errorf(k, "%s: %s (%s, request %s)", operation, message, code, brig.Clip(cmp.Or(number, "unknown"), 100)).WithHint("%s", hint).Because(cause)
	}
	switch {
	case a.Status == http.StatusTooManyRequests || strings.HasPrefix(e.Code, "Throttling"):
		limited := newError(brig.RateLimited, "the service takes no more requests for now", "try again in a moment")
		limited.RetryAfter = time.Second
		if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && n >= 0 && n < 3600 {
			limited.RetryAfter = time.Duration(n) * time.Second
		}
		return limited
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		return newError(brig.ConnectionFailed, "the service refuses the credentials",
			"have an operator look at the access key, and whether its RAM user is allowed "+permission(operation)+" (the policy AliyunAgentRunFullAccess has all that is needed)")
	case a.Status == http.StatusNotFound:
		return newError(brig.NotFound, "the service knows no such thing", "it may have ended")
	case a.Status == http.StatusConflict:
		return newError(brig.AlreadyExists, "the service has it already", "try again")
	case a.Status < 500 && a.Status >= 400:
		return newError(brig.InvalidArgument, "the service refuses the request", "give less code and smaller arguments, or look at the provider's configuration")
	case a.Status == http.StatusServiceUnavailable:
		return newError(brig.Unavailable, "the service is unavailable", "try again in a moment")
	case a.Status >= 500:
		return brig.WithRetry(newError(brig.Unavailable, "the service failed", "try again in a moment"), brig.RetryContained)
	}
	return newError(brig.ConnectionFailed, "what answers is not the service", "have an operator look at the provider's endpoints")
}
