package agentrun

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

// The states of a template and a sandbox, and the code of what went well.
const (
	ready        = "READY"
	codeSuccess  = "SUCCESS"
	createFailed = "CREATE_FAILED"
)

// envelope is what is around every answer of both planes, and what a refusal
// is.
type envelope struct {
	Code      string          `json:"code"`
	Message   string          `json:"message"`
	RequestID string          `json:"requestId"`
	Data      json.RawMessage `json:"data"`
}

// sandbox is what the service says of one.
type sandbox struct {
	ID     string `json:"sandboxId"`
	Status string `json:"status"`
}

// template is what the service says of one.
type template struct {
	Name   string `json:"templateName"`
	Status string `json:"status"`
	Reason string `json:"statusReason"`
}

// service is both planes.
type service struct {
	creds         *credentials
	data, control *remote.Client
	patience      time.Duration // with one call; 0 is the default
}

// callTime is how long a call may take whose caller sets no other bound.
const callTime = time.Minute

// onData makes a call of the data plane. Into gets the answer's data, or all of
// it if plain says that there is no envelope.
func (s *service) onData(ctx context.Context, operation, method, path string, in, into any, plain bool) error {
	r := remote.Request{Operation: operation, Method: method, Path: "/sandboxes" + path, Sign: s.creds.signData}
	a, err := s.exchange(ctx, s.data, r, in)
	if err != nil {
		return err
	}
	return read(operation, a, into, plain)
}

// onControl makes a call of the control plane.
func (s *service) onControl(ctx context.Context, action, method, path string, query url.Values, in, into any) error {
	r := remote.Request{Operation: action, Method: method, Path: "/" + controlVersion + path, Query: query}
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

func (s *service) exchange(ctx context.Context, c *remote.Client, r remote.Request, in any) (*remote.Answer, error) {
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
	within, cancel := context.WithTimeout(ctx, cmp.Or(s.patience, callTime))
	defer cancel()
	a, err := c.Do(within, r)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return nil, brig.Errorf(brig.Unavailable, "the service does not answer %s in time", r.Operation).
			WithHint("try again in a moment, or route to another provider").Because(err)
	}
	if err == nil && a.Status >= 300 {
		err = refusal(r.Operation, a)
	}
	return a, err
}

// read takes what was asked for out of an answer.
func read(operation string, a *remote.Answer, into any, plain bool) error {
	if into == nil {
		return nil
	}
	data := a.Body
	if !plain {
		var e envelope
		if err := json.Unmarshal(a.Body, &e); err != nil {
			return strange(operation, err)
		}
		if e.Code != "" && e.Code != codeSuccess && e.Code != "200" {
			return refusal(operation, a)
		}
		if data = e.Data; len(data) == 0 {
			data = a.Body // some answers have none around them
		}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return strange(operation, err)
	}
	return nil
}

func strange(operation string, err error) error {
	return brig.Errorf(brig.Unavailable, "the service's answer to %s is none", operation).
		WithHint("have an operator look at the provider's endpoints").Because(errors.Join(err, brig.ErrBegan))
}

// permission is what a RAM user needs to do what could not be done: of the
// control plane each operation has an action of its name.
func permission(operation string) string {
	if strings.HasSuffix(operation, "Template") || strings.HasSuffix(operation, "Templates") {
		return "agentrun:" + operation
	}
	return "agentrun:Invoke*"
}

// refusal translates an error of the service: its status says what kind it is,
// its code and the number of the request are for whoever asks there.
func refusal(operation string, a *remote.Answer) error {
	var e envelope
	_ = json.Unmarshal(a.Body, &e) // what is no JSON says nothing
	number := e.RequestID
	for _, h := range []string{"X-Acs-Request-Id", "X-Agentrun-Request-Id", "X-Request-Id", "X-Fc-Request-Id"} {
		number = cmp.Or(number, a.Header.Get(h))
	}
	said := fmt.Errorf("HTTP %d: %s: %s (request %s)", a.Status, brig.Clip(e.Code, 100), brig.Clip(e.Message, 500), brig.Clip(number, 100))
	code := brig.Clip(cmp.Or(e.Code, "HTTP "+strconv.Itoa(a.Status)), 100)
	told := func(k brig.Kind, message, hint string) *brig.Error {
		return brig.Errorf(k, "%s: %s (%s, request %s)", operation, message, code, brig.Clip(cmp.Or(number, "unknown"), 100)).WithHint("%s", hint).Because(said)
	}
	switch {
	case a.Status == http.StatusTooManyRequests || strings.HasPrefix(e.Code, "Throttling"):
		limited := told(brig.RateLimited, "the service takes no more requests for now", "try again in a moment")
		limited.RetryAfter = time.Second
		if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && n >= 0 && n < 3600 {
			limited.RetryAfter = time.Duration(n) * time.Second
		}
		return limited
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		return told(brig.ConnectionFailed, "the service refuses the credentials",
			"have an operator look at the access key, and whether its RAM user is allowed "+permission(operation)+" (the policy AliyunAgentRunFullAccess has all that is needed)")
	case a.Status == http.StatusNotFound:
		return told(brig.NotFound, "the service knows no such thing", "it may have ended")
	case a.Status == http.StatusConflict:
		return told(brig.AlreadyExists, "the service has it already", "try again")
	case a.Status < 500 && a.Status >= 400:
		return told(brig.InvalidArgument, "the service refuses the request", "give less code and smaller arguments, or look at the provider's configuration")
	case a.Status == http.StatusServiceUnavailable:
		return told(brig.Unavailable, "the service is unavailable", "try again in a moment")
	case a.Status >= 500:
		e := told(brig.Unavailable, "the service failed", "try again in a moment")
		return e.Because(errors.Join(said, brig.ErrBegan))
	}
	return told(brig.ConnectionFailed, "what answers is not the service", "have an operator look at the provider's endpoints")
}
