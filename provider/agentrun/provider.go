package agentrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

// languages lists the languages that the service's interpreters support.
var languages = []brig.Language{brig.Python, brig.JavaScript}

const (
	// idleSeconds is the time after which the service ends an idle sandbox,
	// for example after a lost delete request.
	idleSeconds = 600
	// answerSlack is the additional time for a response after the program's
	// timeout.
	answerSlack = 5 * time.Second
	// deleteTimeout is the maximum duration of the deletion of a sandbox.
	deleteTimeout = 15 * time.Second
	// retries is the maximum number of retries of a call, as long as the
	// program has not started.
	retries = 2
	// workDir is the working directory of a context.
	workDir = "/home/user"
)

// Provider runs programs in AgentRun, with one account in one region.
type Provider struct {
	env     brig.ProviderEnv
	config  Config
	service service

	mu        sync.Mutex // guards the field below
	templates map[string]bool
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Runner   = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
)

// Open returns a provider. It does not connect to the service yet.
func Open(env brig.ProviderEnv, c Config) (*Provider, error) {
	client := func(at *brig.Endpoint, err error) (*remote.Client, error) {
		if err != nil {
			return nil, err
		}
		return remote.New(remote.Options{Endpoint: at, Pin: c.PinSHA256, Region: c.Region, OnCall: env.Called})
	}
	control, err := client(c.control())
	if err != nil {
		return nil, err
	}
	data, err := client(c.data())
	if err != nil {
		return nil, err
	}
	creds := &credentials{id: c.AccessKeyID, secret: c.AccessKeySecret, token: c.SecurityToken, region: c.Region, now: time.Now}
	return &Provider{
		env: env, config: c, templates: map[string]bool{},
		service: service{creds: creds, data: data, control: control},
	}, nil
}

// Close implements io.Closer.
func (p *Provider) Close() error {
	return errors.Join(p.service.data.Close(), p.service.control.Close())
}

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	enforces := remote.RemoteEnforcement("AgentRun")
	egress := enforces[brig.AreaEgress]
	egress.Lower(brig.LevelNone, "its templates have the public internet")
	enforces[brig.AreaEgress] = egress
	return brig.Capabilities{Name: Name, Isolation: "AgentRun, a cloud service", RunsOnly: true, Enforces: enforces}
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

// Check implements brig.Checker. It lists templates, a request that needs the
// control plane and valid credentials and is free of charge.
func (p *Provider) Check(ctx context.Context) error {
	return p.service.callControlPlane(ctx, "ListTemplates", http.MethodGet, "/templates", url.Values{"pageNumber": {"1"}, "pageSize": {"1"}}, nil, &struct{}{})
}

func (p *Provider) retry(ctx context.Context, operation string, f func() error) error {
	return remote.Retry(ctx, p.env.Log.With("provider", p.env.ID), operation, retries, f)
}

// Run implements brig.Runner.
func (p *Provider) Run(ctx context.Context, id brig.ID, prog brig.Program, sio brig.IO) (_ *brig.Outcome, err error) {
	if err := remote.CheckSupported(prog, sio, Title, languages...); err != nil {
		return nil, err
	}
	w := wrap(prog)
	box, err := p.make(ctx, prog.Language)
	if err != nil {
		return nil, err
	}
	defer p.end(ctx, id, box)
	contextID, err := p.createContext(ctx, box, prog.Language)
	if err != nil {
		return nil, err
	}
	seconds := p.config.Timeout
	if prog.Timeout > 0 {
		seconds = min(seconds, max(1, int((prog.Timeout+time.Second-1)/time.Second)))
	}
	limit := time.Duration(seconds) * time.Second
	if prog.Timeout > 0 {
		limit = min(limit, prog.Timeout)
	}
	o := remote.NewOutcome(prog, sio)
	results, err := p.execute(ctx, box, limit, map[string]any{"code": w.code, "language": string(prog.Language), "contextId": contextID, "timeout": seconds})
	o.Duration = time.Since(o.Started)
	if errors.Is(err, errOutOfTime) {
		results, err = nil, nil // only the program's files have output
	}
	if err != nil {
		return nil, err
	}
	p.collect(ctx, box, o, p.fillOutcome(ctx, box, w, o, prog, results, limit))
	o.Done = true
	remote.LimitOutcome(o, prog)
	return o, writeOutput(o, sio)
}

// writeOutput writes a program's output to the caller's streams.
func writeOutput(o *brig.Outcome, sio brig.IO) error {
	for _, s := range []struct {
		to io.Writer
		of brig.Output
	}{{sio.Stdout, o.Stdout}, {sio.Stderr, o.Stderr}} {
		if s.to == nil || s.of.Total == 0 {
			continue
		}
		for _, part := range [][]byte{s.of.Head, s.of.Tail} {
			if _, err := s.to.Write(part); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}
	}
	return nil
}

// make creates a sandbox and waits until the sandbox is ready.
func (p *Provider) make(ctx context.Context, language brig.Language) (string, error) {
	name := p.templateNameFor(language)
	if err := p.ensureTemplate(ctx, name); err != nil {
		return "", err
	}
	var s sandbox
	err := p.retry(ctx, "create", func() error {
		return notStartedError(p.service.callDataPlane(ctx, "create", http.MethodPost, "", map[string]any{"templateName": name, "sandboxIdleTimeoutSeconds": idleSeconds}, &s, false))
	})
	if brig.KindOf(err) == brig.NotFound {
		p.forget(name)
		return "", brig.Errorf(brig.CreationFailed, "the template %q no longer exists", name).WithHint("try again: it will be created again").Because(err)
	}
	if err != nil {
		return "", err
	}
	if !isPlainName(s.ID) || s.ID == "" {
		return "", brig.Errorf(brig.CreationFailed, "the service made a sandbox without an id that is one").WithHint("try again")
	}
	err = p.await(ctx, sandboxTimeout, "the sandbox", func() (bool, error) {
		var health struct {
			Status string `json:"status"`
		}
		err := p.service.callDataPlane(ctx, "health", http.MethodGet, "/"+s.ID+"/health", nil, &health, true)
		if brig.KindOf(err) == brig.NotFound {
			err = brig.Errorf(brig.Unavailable, "it is not ready yet").Because(err)
		}
		return err == nil && health.Status == "ok", err
	})
	if err != nil {
		p.end(ctx, "", s.ID)
		return "", notStartedError(err)
	}
	return s.ID, nil
}

// createContext creates an interpreter in a sandbox.
func (p *Provider) createContext(ctx context.Context, box string, language brig.Language) (string, error) {
	var created struct {
		ID string `json:"id"`
	}
	err := p.retry(ctx, "context", func() error {
		return notStartedError(p.service.callDataPlane(ctx, "context", http.MethodPost, "/"+box+"/contexts", map[string]string{"cwd": workDir, "language": string(language)}, &created, true))
	})
	return created.ID, err
}

// errOutOfTime ends a call whose program exceeded its timeout.
var errOutOfTime = errors.New("the program's time is over")

// execute runs code. It never retries, because the code may already have run.
func (p *Provider) execute(ctx context.Context, box string, limit time.Duration, order map[string]any) ([]event, error) {
	runCtx, cancel := context.WithTimeoutCause(ctx, limit+answerSlack, errOutOfTime)
	defer cancel()
	var response struct {
		Results events `json:"results"`
	}
	err := p.service.callDataPlane(runCtx, "execute", http.MethodPost, "/"+box+"/contexts/execute", order, &response, true)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("execute: %w", context.Cause(ctx))
	}
	return response.Results, err
}

// end deletes a sandbox, even if its program failed or the caller disconnected.
// If the deletion fails, the service ends the idle sandbox after idleSeconds.
func (p *Provider) end(ctx context.Context, id brig.ID, box string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	err := p.retry(ctx, "delete", func() error {
		return notStartedError(p.service.callDataPlane(ctx, "delete", http.MethodDelete, "/"+box, nil, nil, true))
	})
	if err != nil && brig.KindOf(err) != brig.NotFound {
		p.env.Log.ErrorContext(ctx, "failed to end a sandbox of AgentRun", "sandbox", id, "there", box, "err", err)
	}
}
