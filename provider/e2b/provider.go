package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
)

// Provider creates sandboxes in a cloud. It implements brig.Provider.
type Provider struct {
	config     Config
	env        brig.ProviderEnv
	api        *api
	serverMark string // identifies the sandboxes of this server

	mu        sync.Mutex // guards the field below
	templates map[string]string
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
	_ brig.Imager   = (*Provider)(nil)
	_ io.Closer     = (*Provider)(nil)
)

func openProvider(env brig.ProviderEnv, c *Config) (*Provider, error) {
	if invalid := c.Validate(); len(invalid) > 0 {
		return nil, guest.ConfigError(invalid).WithHint("correct it: brig provider configure")
	}
	p := &Provider{config: *c, env: env, templates: map[string]string{}}
	p.api = newAPI(&p.config, env.Called)
	var err error
	p.serverMark, err = guest.ServerMark(env.Dir)
	return p, err
}

// Close implements io.Closer.
func (p *Provider) Close() error {
	p.api.http.CloseIdleConnections()
	return nil
}

// Check implements brig.Checker. It sends a request that normal operation
// needs as well.
func (p *Provider) Check(ctx context.Context) error {
	_, err := p.api.do(ctx, request{op: "list", method: http.MethodGet, path: "/v2/sandboxes?limit=1", safe: true}, nil)
	return err
}

// Image implements brig.Imager: images are the cloud's templates.
func (p *Provider) Image(ctx context.Context, ref string) (*brig.Image, error) {
	name := ref
	if ref == "" || ref == brig.HostImage {
		name = p.config.Template
	}
	if known, err := p.templateOf(ref); err == nil {
		name = known // the caller specified the digest
	}
	id, err := p.api.template(ctx, name)
	if brig.KindOf(err) == brig.NotFound {
		e := brig.Errorf(brig.NotFound, "the E2B service has no template %q", brig.Clip(name, 100)).WithHint("name a template of the team's, or leave the image out").Because(err)
		e.Field = "image"
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(p.config.api() + "\n" + id))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if err := p.storeTemplate(digest, id); err != nil {
		return nil, err
	}
	return &brig.Image{Digest: digest, Names: []string{name}, Source: Name, Notes: []string{"what is in it is the E2B service's own affair"}}, nil
}

// Limits of stored templates.
const (
	maxTemplates  = 10_000
	maxTemplateID = 256 // bytes
)

// storeTemplate stores the template of a digest, because a Spec contains only
// the digest.
func (p *Provider) storeTemplate(digest, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.templates[digest] == id {
		return nil
	}
	if len(id) > maxTemplateID || len(p.templates) >= maxTemplates {
		return brig.Errorf(brig.ConnectionFailed, "the E2B service has more templates, or longer names for them, than a team has").
			WithHint("check that api_url is the address of an E2B control plane")
	}
	p.templates[digest] = id
	dir := filepath.Join(p.env.Dir, "templates")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, digest[len("sha256:"):]), []byte(id), 0o600)
}

func (p *Provider) templateOf(digest string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := p.templates[digest]; ok {
		return id, nil
	}
	const size = len("sha256:") + 2*sha256.Size
	if len(digest) == size {
		if _, err := hex.DecodeString(digest[len("sha256:"):]); err == nil {
			if b, err := os.ReadFile(filepath.Join(p.env.Dir, "templates", digest[len("sha256:"):])); err == nil {
				return string(b), nil
			}
		}
	}
	e := brig.Errorf(brig.NotFound, "no template of the E2B service has this digest")
	e.Field = "image"
	return "", e
}

// leaseMargin is the time for which the cloud keeps a sandbox after its lease.
// During this time, the agent inside ends and reports the reason, and its log
// remains readable.
const leaseMargin = time.Minute

func seconds(lease time.Time) int64 {
	return int64((max(time.Until(lease), 0) + leaseMargin).Round(time.Second) / time.Second)
}

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (_ brig.Instance, err error) {
	if !brig.ValidName(string(id)) {
		return nil, brig.InvalidField("id", "%q cannot be a sandbox's id", brig.Clip(string(id), 63))
	}
	if spec.BuildRights {
		return nil, brig.NoBuildRights(Name)
	}
	if len(spec.Volumes) > 0 {
		return nil, brig.NoVolumes(Name)
	}
	template, err := p.templateOf(spec.Image)
	if err != nil {
		return nil, err
	}
	meta := map[string]string{metaSite: p.serverMark, metaID: string(id)}
	if spec.Ephemeral {
		meta[metaEphemeral] = "true"
	}
	s, err := p.api.create(ctx, template, seconds(lease), meta)
	if err != nil {
		return nil, errors.Join(p.createError(err), p.forget(ctx, id))
	}
	i := &instance{p: p, id: id, sandbox: s.SandboxID}
	defer func() {
		if err != nil {
			cleanupCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, i.destroySandbox(cleanupCtx))
		}
	}()
	b, err := p.api.newBox(s)
	if err != nil {
		return nil, err
	}
	if err := b.uploadAgent(ctx, p.env.Agent); err != nil {
		return nil, p.createError(err)
	}
	i.remoteHost = p.newRemoteHost(b)
	m, err := i.remoteHost.Create(ctx, p.options(i), spec, lease, wire.Make{Bare: true})
	if err != nil {
		return nil, err
	}
	i.SupervisedInstance = m
	return i, nil
}

// createError returns the error of a failed creation.
func (p *Provider) createError(err error) error {
	if brig.KindOf(err) == brig.FailedPrecondition {
		e := brig.AsError(err)
		return brig.Errorf(brig.CreationFailed, "%s", e.Message).Because(err)
	}
	return err
}

// forget kills the sandbox of a create call whose response was lost.
func (p *Provider) forget(ctx context.Context, id brig.ID) error {
	createCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(p.config.Timeout)*time.Second)
	defer cancel()
	made, err := p.api.list(createCtx, url.Values{metaSite: {p.serverMark}, metaID: {string(id)}})
	if err != nil {
		return nil // the list is unavailable: the sandbox ends by its timeout
	}
	var errs []error
	for _, s := range made {
		if s.Metadata.Site != p.serverMark || s.Metadata.ID != string(id) {
			continue
		}
		errs = append(errs, p.api.kill(createCtx, s.SandboxID))
	}
	return errors.Join(errs...)
}

// heartbeat is the heartbeat interval of a stream. If no heartbeat arrives, the
// agent closes the stream, because an E2B service does not notify a process
// that its client has disconnected.
const heartbeat = 30 * time.Second

func (p *Provider) newRemoteHost(b *box) *guest.RemoteHost {
	return &guest.RemoteHost{Open: b.connectAgent, Label: "the sandbox at the E2B service", Heartbeat: heartbeat}
}

func (p *Provider) options(i *instance) guest.InstanceOptions {
	return guest.InstanceOptions{
		ID: i.id, Dir: filepath.Join(p.env.Dir, "machines", string(i.id)), NoUplink: true,
		Gone: func(ctx context.Context) bool { return brig.KindOf(p.api.get(ctx, i.sandbox)) == brig.NotFound },
	}
}

// handleState is the state in a handle.
type handleState struct{ Sandbox string }

// Recover implements brig.Provider.
func (p *Provider) Recover(ctx context.Context, id brig.ID, h brig.Handle) (brig.Instance, error) {
	var v handleState
	if json.Unmarshal(h.State, &v) != nil || v.Sandbox == "" || !brig.ValidName(string(id)) {
		return nil, brig.Errorf(brig.NotFound, "there is no such sandbox at the E2B service")
	}
	s, err := p.api.connect(ctx, v.Sandbox)
	if err != nil {
		return nil, err
	}
	b, err := p.api.newBox(s)
	if err != nil {
		return nil, err
	}
	i := &instance{p: p, id: id, sandbox: v.Sandbox, remoteHost: p.newRemoteHost(b)}
	m, err := i.remoteHost.Attach(ctx, p.options(i), time.Now().Add(time.Hour))
	if err != nil {
		return nil, errors.Join(err, i.remoteHost.Close())
	}
	i.SupervisedInstance = m
	return i, nil
}

// Sweep implements brig.Provider.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	all, err := p.api.list(ctx, url.Values{metaSite: {p.serverMark}})
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, s := range all {
		id := brig.ID(s.Metadata.ID)
		if s.Metadata.Site != p.serverMark || known[id] || s.Metadata.Ephemeral != "" && p.isInUse(ctx, s.SandboxID) {
			continue
		}
		if err := p.api.kill(ctx, s.SandboxID); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
		if brig.ValidName(string(id)) {
			errs = append(errs, os.RemoveAll(filepath.Join(p.env.Dir, "machines", string(id))))
		}
	}
	return n, errors.Join(errs...)
}

// isInUse reports whether a Brig server still uses the instance in a sandbox.
func (p *Provider) isInUse(ctx context.Context, id string) bool {
	s, err := p.api.connect(ctx, id)
	if err != nil {
		return false
	}
	b, err := p.api.newBox(s)
	if err != nil {
		return false
	}
	remoteHost := p.newRemoteHost(b)
	defer func() { _ = remoteHost.Close() }() // it never fails
	states, err := remoteHost.States(ctx)
	return err == nil && len(states) > 0 && states[0].Tethered && states[0].Ended == nil
}
