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

// Provider makes sandboxes of a cloud's. It implements brig.Provider.
type Provider struct {
	config Config
	site   brig.Site
	api    *api
	mark   string // of what this server has made

	mu        sync.Mutex // guards the field below
	templates map[string]string
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
	_ brig.Imager   = (*Provider)(nil)
	_ io.Closer     = (*Provider)(nil)
)

func open(site brig.Site, c *Config) (*Provider, error) {
	if wrong := c.Wrong(); len(wrong) > 0 {
		return nil, guest.Wrong(wrong).WithHint("correct it: brig provider configure")
	}
	p := &Provider{config: *c, site: site, templates: map[string]string{}}
	p.api = newAPI(&p.config, site.Called)
	var err error
	p.mark, err = guest.Mark(site.Dir)
	return p, err
}

// Close implements io.Closer.
func (p *Provider) Close() error {
	p.api.http.CloseIdleConnections()
	return nil
}

// Check implements brig.Checker. It asks for what is there anyway.
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
		name = known // by its digest
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
	if err := p.remember(digest, id); err != nil {
		return nil, err
	}
	return &brig.Image{Digest: digest, Names: []string{name}, Source: Name, Notes: []string{"what is in it is the E2B service's own affair"}}, nil
}

// remember keeps which template a digest means: digests are all that a Spec has.
func (p *Provider) remember(digest, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.templates[digest] == id {
		return nil
	}
	p.templates[digest] = id
	dir := filepath.Join(p.site.Dir, "templates")
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
			if b, err := os.ReadFile(filepath.Join(p.site.Dir, "templates", digest[len("sha256:"):])); err == nil {
				return string(b), nil
			}
		}
	}
	e := brig.Errorf(brig.NotFound, "no template of the E2B service has this digest")
	e.Field = "image"
	return "", e
}

// margin is how much longer the cloud keeps a sandbox than its lease: what is
// inside ends first, says why, and has a log that can be read.
const margin = time.Minute

func seconds(lease time.Time) int64 {
	return int64((max(time.Until(lease), 0) + margin).Round(time.Second) / time.Second)
}

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (_ brig.Instance, err error) {
	if !brig.ValidName(string(id)) {
		return nil, brig.InvalidField("id", "%q cannot be a sandbox's id", brig.Clip(string(id), 63))
	}
	template, err := p.templateOf(spec.Image)
	if err != nil {
		return nil, err
	}
	meta := map[string]string{metaSite: p.mark, metaID: string(id)}
	if spec.Ephemeral {
		meta[metaEphemeral] = "true"
	}
	s, err := p.api.create(ctx, template, seconds(lease), meta)
	if err != nil {
		return nil, errors.Join(p.created(err), p.forget(ctx, id))
	}
	i := &instance{p: p, id: id, sandbox: s.SandboxID}
	defer func() {
		if err != nil {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, i.discard(within))
		}
	}()
	b := p.api.box(s)
	if err := b.bring(ctx, p.site.Agent); err != nil {
		return nil, p.created(err)
	}
	i.post = p.outpost(b)
	m, err := i.post.Make(ctx, p.options(i), spec, lease, wire.Make{Bare: true})
	if err != nil {
		return nil, err
	}
	i.OutpostMachine = m
	return i, nil
}

// created is why nothing was.
func (p *Provider) created(err error) error {
	if brig.KindOf(err) == brig.FailedPrecondition {
		e := brig.AsError(err)
		return brig.Errorf(brig.CreationFailed, "%s", e.Message).Because(err)
	}
	return err
}

// forget kills what a call has made whose answer was lost.
func (p *Provider) forget(ctx context.Context, id brig.ID) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(p.config.Timeout)*time.Second)
	defer cancel()
	made, err := p.api.list(within, url.Values{metaSite: {p.mark}, metaID: {string(id)}})
	if err != nil {
		return nil // it cannot be reached: the sandbox ends by its timeout
	}
	var errs []error
	for _, s := range made {
		errs = append(errs, p.api.kill(within, s.SandboxID))
	}
	return errors.Join(errs...)
}

// beat is how often a stream is used at least: one that is not is over for the
// agent, since no E2B service tells a process that its client has gone.
const beat = 30 * time.Second

func (p *Provider) outpost(b *box) *guest.Outpost {
	return &guest.Outpost{Open: b.open, Where: "the sandbox at the E2B service", Beat: beat}
}

func (p *Provider) options(i *instance) guest.MachineOptions {
	return guest.MachineOptions{
		ID: i.id, Dir: filepath.Join(p.site.Dir, "machines", string(i.id)), NoUplink: true,
		Gone: func(ctx context.Context) bool { return brig.KindOf(p.api.get(ctx, i.sandbox)) == brig.NotFound },
	}
}

// handleState is what a handle remembers.
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
	i := &instance{p: p, id: id, sandbox: v.Sandbox, post: p.outpost(p.api.box(s))}
	m, err := i.post.Find(ctx, p.options(i), time.Now().Add(time.Hour))
	if err != nil {
		return nil, errors.Join(err, i.post.Close())
	}
	i.OutpostMachine = m
	return i, nil
}

// Sweep implements brig.Provider.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	all, err := p.api.list(ctx, url.Values{metaSite: {p.mark}})
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, s := range all {
		id := brig.ID(s.Metadata[metaID])
		if known[id] || s.Metadata[metaEphemeral] != "" && p.inUse(ctx, s.SandboxID) {
			continue
		}
		if err := p.api.kill(ctx, s.SandboxID); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
		if brig.ValidName(string(id)) {
			errs = append(errs, os.RemoveAll(filepath.Join(p.site.Dir, "machines", string(id))))
		}
	}
	return n, errors.Join(errs...)
}

// inUse reports whether somebody holds the machine in a sandbox.
func (p *Provider) inUse(ctx context.Context, id string) bool {
	s, err := p.api.connect(ctx, id)
	if err != nil {
		return false
	}
	post := p.outpost(p.api.box(s))
	defer func() { _ = post.Close() }() // it always can
	states, err := post.States(ctx)
	return err == nil && len(states) > 0 && states[0].Tethered && states[0].Ended == nil
}
