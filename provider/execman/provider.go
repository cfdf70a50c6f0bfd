package execman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	v1 "github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/remote"
)

// languages lists the languages that an executor manager supports.
var languages = []brig.Language{brig.Python, brig.JavaScript}

// queueTimeout is the maximum time for which a program waits while the service
// already runs its maximum number of programs.
const queueTimeout = 10 * time.Second

// maxAnswer is the maximum size of a response, in bytes: artifacts in base64,
// and the output.
const maxAnswer = 320 << 20

// maxArtifacts is the maximum number of artifacts in a response. Artifacts
// beyond brig.MaxArtifacts are reported as skipped.
const maxArtifacts = 1000

// Provider runs programs on one executor manager.
type Provider struct {
	env    brig.ProviderEnv
	config Config
	client *remote.Client
	slots  chan struct{}
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Runner   = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
)

// Open returns a provider. It does not connect to the service yet.
func Open(env brig.ProviderEnv, c Config) (*Provider, error) {
	at, err := brig.ParseEndpoint("endpoint", c.Endpoint, c.AllowPrivate)
	if err != nil {
		return nil, err
	}
	client, err := remote.New(remote.Options{Endpoint: at, Pin: c.PinSHA256, Authority: c.Authority, OnCall: env.Called, Max: maxAnswer})
	if err != nil {
		return nil, err
	}
	return &Provider{env: env, config: c, client: client, slots: make(chan struct{}, max(c.PoolSize, 1))}, nil
}

// Close implements io.Closer.
func (p *Provider) Close() error { return p.client.Close() }

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: Name, Isolation: "an executor manager elsewhere", RunsOnly: true, Enforces: remote.RemoteEnforcement("the executor manager")}
}

// Create implements brig.Provider.
func (p *Provider) Create(context.Context, brig.ID, brig.Spec, time.Time) (brig.Instance, error) {
	return nil, brig.Errorf(brig.Unimplemented, "%s has no sandboxes, it only runs programs", Title).WithHint("run the program whole, or choose another provider")
}

// Recover implements brig.Provider.
func (p *Provider) Recover(_ context.Context, id brig.ID, _ brig.Handle) (brig.Instance, error) {
	return nil, brig.Errorf(brig.NotFound, "no machine %s", id)
}

// Sweep implements brig.Provider.
func (p *Provider) Sweep(context.Context, map[brig.ID]bool) (int, error) { return 0, nil }

// Check implements brig.Checker.
func (p *Provider) Check(ctx context.Context) error {
	a, err := p.client.Do(ctx, remote.Request{Operation: "health", Method: http.MethodGet, Path: "/healthz"})
	if err != nil {
		return err
	}
	var health struct {
		Status string `json:"status"`
	}
	if a.Status != http.StatusOK {
		return refusalError(a)
	}
	if json.Unmarshal(a.Body, &health) != nil || health.Status != "ok" {
		return unexpectedResponseError()
	}
	if brig.IsForwardingLoop(strings.Join(a.Header.Values("Via"), ", "), p.env.Server) {
		return loopError()
	}
	return nil
}

// loopError returns the error for an endpoint that refers to this server
// itself.
func loopError() *brig.Error {
	e := brig.Errorf(brig.InvalidConfig, "the endpoint is this server's own executor manager API, so programs would loop").
		WithHint("give the address of another executor manager, or activate another provider")
	e.Field = "endpoint"
	return e
}

func unexpectedResponseError() *brig.Error {
	return brig.Errorf(brig.ConnectionFailed, "what answers at the endpoint is no executor manager").
		WithHint("have an operator check the provider's endpoint: GET /healthz must return {\"status\":\"ok\"}")
}

// errOutOfTime ends a call whose program exceeded its timeout.
var errOutOfTime = errors.New("the program's time is over")

// Run implements brig.Runner.
func (p *Provider) Run(ctx context.Context, id brig.ID, prog brig.Program, sio brig.IO) (*brig.Outcome, error) {
	if err := remote.CheckSupported(prog, sio, Title, languages...); err != nil {
		return nil, err
	}
	source := convertProgram(prog)
	body, err := json.Marshal(source.request)
	if err != nil {
		return nil, fmt.Errorf("encode program %s: %w", id, err)
	}
	leave, err := p.acquireSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	limit := time.Duration(p.config.Timeout) * time.Second
	if prog.Timeout > 0 {
		limit = min(limit, prog.Timeout)
	}
	o := remote.NewOutcome(prog, sio)
	var result *v1.ExecmanResult
	err = remote.Retry(ctx, p.log(id), "run", p.config.MaxRetries, func() error {
		o.Started = time.Now().UTC()
		runCtx, cancel := context.WithTimeoutCause(ctx, limit, errOutOfTime)
		defer cancel()
		result, err = p.call(runCtx, body)
		return err
	})
	switch {
	case err == nil:
		return o, p.fillOutcome(o, prog, source, sio, result)
	case ctx.Err() != nil:
		return nil, err
	case errors.Is(err, errOutOfTime) && brig.RetryOf(err) == brig.RetryContained:
		remote.SetTimedOut(o, limit.String())
		return o, remote.Finish(o, prog, sio, nil, nil)
	case errors.Is(err, errOutOfTime):
		return nil, brig.Errorf(brig.ConnectionFailed, "the service took no request within %v", limit).Because(err)
	}
	return nil, err
}

func (p *Provider) log(id brig.ID) *slog.Logger {
	return p.env.Log.With("provider", p.env.ID, "sandbox", id)
}

// acquireSlot waits until the service can run another program.
func (p *Provider) acquireSlot(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(queueTimeout)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, busyError("%d programs run there at once, which is its limit", cap(p.slots))
	}
}

func busyError(format string, args ...any) *brig.Error {
	e := brig.Errorf(brig.RateLimited, format, args...).WithHint("try again in a moment, or raise the provider's pool_size if the service has room")
	e.RetryAfter = time.Second
	return e
}

// call makes one attempt. It returns an error only for a failure of the
// service, not of the program.
func (p *Provider) call(ctx context.Context, body []byte) (*v1.ExecmanResult, error) {
	a, err := p.client.Do(ctx, remote.Request{
		Operation: "run", Method: http.MethodPost, Path: "/run", Body: body,
		Header: http.Header{"Content-Type": {v1.JSON}, "Via": {brig.ViaFrom(ctx, p.env.Server)}},
	})
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, refusalError(a)
	}
	var response struct {
		v1.ExecmanResult
		Artifacts json.RawMessage `json:"artifacts"`
	}
	err = json.Unmarshal(a.Body, &response)
	if err == nil && len(response.Artifacts) > 0 {
		response.ExecmanResult.Artifacts, err = remote.DecodeList[v1.ExecmanArtifact](response.Artifacts, maxArtifacts)
	}
	if err != nil || response.Status == "" {
		return nil, brig.WithRetry(unexpectedResponseError().Because(err), brig.RetryContained)
	}
	return &response.ExecmanResult, resultError(&response.ExecmanResult)
}

// refusalError converts a response without a result to an error.
func refusalError(a *remote.Response) error {
	cause := errors.New("HTTP " + strconv.Itoa(a.Status) + ": " + brig.Clip(string(a.Body), 500))
	switch {
	case a.Status == http.StatusUnprocessableEntity || a.Status == http.StatusBadRequest || a.Status == http.StatusRequestEntityTooLarge:
		return brig.Errorf(brig.InvalidArgument, "the executor manager refuses the request (HTTP %d)", a.Status).
			WithHint("give less code and smaller arguments, or choose another provider").Because(cause)
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		return brig.Errorf(brig.ConnectionFailed, "the executor manager does not let this server in (HTTP %d)", a.Status).
			WithHint("have its operator add this server's address to its allowlist").Because(cause)
	case a.Status == http.StatusTooManyRequests:
		e := busyError("the executor manager takes no more requests for now").Because(cause)
		if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && n >= 0 && n < 3600 {
			e.RetryAfter = time.Duration(n) * time.Second
		}
		return e
	case a.Status == http.StatusServiceUnavailable:
		return brig.Errorf(brig.Unavailable, "the executor manager is unavailable").WithHint("try again in a moment").Because(cause)
	case a.Status >= 500:
		return brig.WithRetry(brig.Errorf(brig.Unavailable, "the executor manager failed (HTTP %d)", a.Status).
			WithHint("see its log").Because(cause), brig.RetryContained)
	}
	return unexpectedResponseError().Because(cause)
}
