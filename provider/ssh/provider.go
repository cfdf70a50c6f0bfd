package ssh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
)

// Provider makes sandboxes on a machine behind SSH. It implements
// brig.Provider.
type Provider struct {
	config   Config
	site     brig.Site
	line     *line
	dir      string // there
	programs map[string]string
	uplinks  atomic.Bool // machines can have one

	bringing sync.Mutex // the agent is brought once
	brought  string     // where the agent is; empty if it has to be looked for

	mu    sync.Mutex // guards the field below
	posts map[string]*guest.Outpost
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
	_ brig.Imager   = (*Provider)(nil)
	_ io.Closer     = (*Provider)(nil)
)

// firstTime is how long a machine has to answer when its provider is opened.
// Whether it does is Check's to say: it may be up later.
const firstTime = 5 * time.Second

func open(ctx context.Context, site brig.Site, c *Config) (*Provider, error) {
	if wrong := c.Wrong(); len(wrong) > 0 {
		return nil, guest.Wrong(wrong).WithHint("correct it: brig provider configure")
	}
	mark, err := guest.Mark(site.Dir)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		config: *c, site: site, dir: path.Join(c.WorkDir, "brig-"+mark), posts: map[string]*guest.Outpost{},
		programs: map[string]string{},
	}
	p.line = &line{config: &p.config, dir: site.Dir, called: site.Called}
	for name, program := range map[string]string{"python3": c.PythonBin, "node": c.NodeBin} {
		if program != name {
			p.programs[name] = program
		}
	}
	ctx, cancel := context.WithTimeout(ctx, firstTime)
	defer cancel()
	if _, err := p.bring(ctx); err != nil && site.Log != nil {
		site.Log.Warn("the machine behind SSH cannot be used yet", "provider", site.ID, "error", err)
	}
	return p, nil
}

// survey makes this server's folder, which has to be nobody else's, and tells
// what machine it is. %s is the folder, and the agent's name.
const survey = `set -e; umask 077; d=%s; mkdir -p "$d"
[ -O "$d" ] && [ ! -L "$d" ] && [ "$(stat -c %%a "$d")" = 700 ] || { echo "$d is not this account's alone" >&2; exit 1; }
uname -s; uname -m
[ -r /dev/net/tun ] && [ -w /dev/net/tun ] && echo tun || echo none
sha256sum < "$d"/%s 2>/dev/null || echo missing`

// machines is what the processors that the agent is for are called.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// bring brings the agent, unless it is there, and returns where it is.
func (p *Provider) bring(ctx context.Context) (string, error) {
	p.bringing.Lock()
	defer p.bringing.Unlock()
	if p.brought != "" {
		return p.brought, nil
	}
	program, err := os.ReadFile(p.site.Agent)
	if err != nil {
		return "", fmt.Errorf("read the agent: %w", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(program))
	name := "agent-" + sum[:16]
	said, err := p.line.run(ctx, fmt.Sprintf(survey, quote(p.dir), name), nil)
	if err != nil {
		return "", err
	}
	is := strings.Fields(said)
	if len(is) < 4 || is[0] != "Linux" || is[1] != machines[runtime.GOARCH] {
		return "", brig.Errorf(brig.InvalidConfig, "%s is %s, and has to be Linux on %s as this server is", p.config.Host, brig.Clip(strings.Join(is[:min(2, len(is))], " on "), 60), machines[runtime.GOARCH]).
			WithHint("use a machine of the server's own kind")
	}
	p.uplinks.Store(is[2] == "tun")
	at := path.Join(p.dir, name)
	if is[3] != sum {
		upload := fmt.Sprintf(`set -e; umask 077; t=%[1]s.$$; trap 'rm -f "$t"' EXIT; cat > "$t"; chmod 700 "$t"; sha256sum < "$t"; mv "$t" %[1]s`, quote(at))
		got, err := p.line.run(ctx, upload, bytes.NewReader(program))
		if err != nil {
			return "", err
		}
		if f := strings.Fields(got); len(f) == 0 || f[0] != sum {
			return "", brig.Errorf(brig.Unavailable, "the agent did not arrive at %s as it was sent", p.config.Host).WithHint("see that its disk is not full")
		}
	}
	p.brought = at
	return at, nil
}

// forgetAgent has the agent be looked for again: somebody may have tidied up.
func (p *Provider) forgetAgent() {
	p.bringing.Lock()
	defer p.bringing.Unlock()
	p.brought = ""
}

// keeper is where the keeper of this server's agent has its folder.
func keeper(agent string) string {
	return path.Join(path.Dir(agent), strings.Replace(path.Base(agent), "agent-", "keeper-", 1))
}

// beat is how often a stream is used at least. A machine that hears nothing for
// three times as long takes its client for gone.
const beat = 30 * time.Second

// post is the keeper of a folder there.
func (p *Provider) post(dir string) *guest.Outpost {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.posts[dir]
	if o == nil {
		o = &guest.Outpost{Where: p.config.Host, Beat: beat, Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
			agent, err := p.bring(ctx)
			if err != nil {
				return nil, err
			}
			return p.line.start(ctx, fmt.Sprintf("exec %s %s %s 90", quote(agent), wire.ReachWord, quote(dir)))
		}, NoKeeper: p.forgetAgent}
		p.posts[dir] = o
	}
	return o
}

// Check implements brig.Checker.
func (p *Provider) Check(ctx context.Context) error {
	agent, err := p.bring(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.config.Timeout)*time.Second)
	defer cancel()
	_, err = p.post(keeper(agent)).States(ctx)
	return err
}

// Close implements io.Closer.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.posts {
		_ = o.Close() // it always can
	}
	return p.line.close()
}

// Image implements brig.Imager.
func (p *Provider) Image(_ context.Context, ref string) (*brig.Image, error) {
	return guest.OwnFiles(ref)
}

func (p *Provider) options(id brig.ID) (guest.MachineOptions, error) {
	o, err := guest.Options(id, filepath.Join(p.site.Dir, "machines"), p.programs)
	o.NoUplink = !p.uplinks.Load()
	return o, err
}

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	agent, err := p.bring(ctx)
	if err != nil {
		return nil, err
	}
	o, err := p.options(id)
	if err != nil {
		return nil, err
	}
	dir := keeper(agent)
	m, err := p.post(dir).Make(ctx, o, spec, lease, wire.Make{Programs: p.programs})
	if err != nil {
		return nil, err
	}
	return &instance{m, p, dir}, nil
}

// handleState is what a handle remembers.
type handleState struct{ Keeper string }

// Recover implements brig.Provider.
func (p *Provider) Recover(ctx context.Context, id brig.ID, h brig.Handle) (brig.Instance, error) {
	var v handleState
	if json.Unmarshal(h.State, &v) != nil || path.Dir(v.Keeper) != p.dir {
		return nil, brig.Errorf(brig.NotFound, "there is no such sandbox at %s", p.config.Host)
	}
	o, err := p.options(id)
	if err != nil {
		return nil, brig.Errorf(brig.NotFound, "there is no such sandbox at %s", p.config.Host).Because(err)
	}
	m, err := p.post(v.Keeper).Find(ctx, o, time.Now().Add(time.Hour))
	if err != nil {
		return nil, err
	}
	return &instance{m, p, v.Keeper}, nil
}

// Sweep implements brig.Provider. Keepers of other versions of the agent have
// folders of their own.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	agent, err := p.bring(ctx)
	if err != nil {
		return 0, err
	}
	said, err := p.line.run(ctx, "cd "+quote(p.dir)+" && ls -1", nil)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, name := range strings.Fields(said) {
		if !strings.HasPrefix(name, "keeper-") {
			continue
		}
		local := "" // what is here is looked at with the keeper of today
		if path.Join(p.dir, name) == keeper(agent) {
			local = filepath.Join(p.site.Dir, "machines")
		}
		swept, err := p.post(path.Join(p.dir, name)).Sweep(ctx, local, known)
		n += swept
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// instance is one sandbox. It implements brig.Instance.
type instance struct {
	*guest.OutpostMachine
	p      *Provider
	keeper string
}

var _ brig.Instance = (*instance)(nil)

// Handle implements brig.Instance.
func (i *instance) Handle() brig.Handle {
	b, err := json.Marshal(handleState{i.keeper})
	if err != nil {
		b = nil // strings always marshal
	}
	return brig.Handle{Provider: Name, Version: 1, State: b}
}

// Notes implements brig.Instance.
func (i *instance) Notes() []string {
	return append([]string{"isolation: this sandbox is a process of " + i.p.config.Host + ", beside that machine's others"}, i.OutpostMachine.Notes()...)
}

// Enforced implements brig.Instance.
func (i *instance) Enforced(context.Context) (map[brig.Area]brig.Enforcement, error) {
	if i.Exit() != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the machine has ended")
	}
	return guest.Seen(i.p.enforces()), nil
}

func (p *Provider) enforces() map[brig.Area]brig.Enforcement {
	return guest.ProcessesEnforce("the machine " + p.config.Host)
}

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: Name, Isolation: "none", Uplinks: p.uplinks.Load(), Enforces: p.enforces()}
}
