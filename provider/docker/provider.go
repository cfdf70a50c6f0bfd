package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
)

// Name is the provider's name.
const Name = "docker"

// Options configure a Provider.
type Options struct {
	// Host is the engine's address, such as "unix:///run/docker.sock" (the
	// default) or "tcp://host:2376".
	Host string
	// TLS contains the paths of the files with which the engine and this
	// server authenticate each other.
	TLS TLS
	// Runtime is the engine's name of the runtime: "runc", "runsc", or a name
	// from its configuration. Default: the engine's default runtime.
	Runtime string
	// Storage selects where a sandbox writes. The default "memory" uses tmpfs
	// mounts within the disk and memory limits, and a read-only image. "layer"
	// uses the container's layer, for engines whose storage driver can limit
	// the layer's size.
	Storage string
	// Pull selects when an image is pulled: "missing" (the default), "always"
	// or "never".
	Pull string
	// Image is the image for brig.HostImage, the default of callers that
	// specify no image.
	Image string
	// Logins maps registries to accounts. Keys are, for example,
	// "registry.example:5000" or "docker.io".
	Logins map[string]Login
	// DataDir contains a directory for each sandbox, with the sandbox's
	// configuration and log.
	DataDir string
	// Prefix is the prefix of container names. The default is "brig".
	Prefix string
	// Instance distinguishes this server's containers from those of other
	// servers at the same engine. The default is stored in DataDir.
	Instance string
	// Agent is the binary of a sandbox's init, built for the engine's host.
	Agent []byte
	Log   *slog.Logger
	// Disabled lists protections to turn off, for tests that verify their
	// effect. Only builds with the tag failpoints read it.
	Disabled []string
}

// TLS contains the paths of files in PEM format.
type TLS struct{ CA, Cert, Key string }

// Login is an account at a registry.
type Login struct{ Username, Password string }

// Provider creates sandboxes with a Docker Engine. It implements brig.Provider.
type Provider struct {
	Options
	api *client.Client
	// transport sends the requests of api.
	transport   *transport
	info        system.Info
	gvisor      bool
	volume      string // the volume with the agent
	enforcement map[brig.Area]brig.Enforcement
	life        context.Context // canceled by Close
	stop        context.CancelFunc

	populating chan struct{} // holds a value while a call fills the volume
	populated  atomic.Bool   // whether the volume contains the agent

	trusting   sync.Mutex               // guards the field below
	trustCache map[string][]trustedFile // by image

	mu   sync.Mutex // guards the field below
	live map[string]map[*instance]bool
}

var (
	_ brig.Provider = (*Provider)(nil)
	_ brig.Imager   = (*Provider)(nil)
	_ brig.Checker  = (*Provider)(nil)
)

// dialTimeout is the maximum time for connecting to a remote engine.
const dialTimeout = 30 * time.Second

// Open connects to an engine, and determines its capabilities.
func Open(ctx context.Context, o Options) (*Provider, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Provider{Options: o, live: map[string]map[*instance]bool{}, populating: make(chan struct{}, 1)}
	if err := p.setDefaults(); err != nil {
		return nil, err
	}
	if err := p.connect(); err != nil {
		return nil, brig.InvalidField("host", "no engine can be at %q", o.Host).
			WithHint("give unix:///path or tcp://host:port, and files for TLS that can be read").Because(err)
	}
	look, err := p.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		p.transport.base.CloseIdleConnections()
		return nil, engineError(err)
	}
	p.info = look.Info
	if err := p.chooseRuntime(); err != nil {
		p.transport.base.CloseIdleConnections()
		return nil, err
	}
	p.enforcement = p.enforces()
	p.life, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.watchMemory(p.life)
	return p, nil
}

// Close disconnects from the engine. Sandboxes continue to run, except for
// sandboxes that are tethered to this process.
func (p *Provider) Close() error {
	p.stop()
	p.mu.Lock()
	var all []*instance
	for _, at := range p.live {
		for i := range at {
			all = append(all, i)
		}
	}
	p.mu.Unlock()
	for _, i := range all {
		i.lease.End()
		i.disconnect()
	}
	p.transport.base.CloseIdleConnections()
	return nil
}

// check returns an error if an option is invalid.
func (o Options) check() error {
	for _, c := range []struct {
		field, value string
		one          []string
	}{
		{"storage", o.Storage, []string{"", storageMemory, storageLayer}},
		{"pull", o.Pull, []string{"", pullMissing, pullAlways, pullNever}},
	} {
		valid := false
		for _, v := range c.one {
			valid = valid || v == c.value
		}
		if !valid {
			return brig.InvalidField(c.field, "%q is not a valid value", brig.Clip(c.value, 40)).WithHint("use one of: %v", c.one[1:])
		}
	}
	if o.Prefix != "" && !brig.ValidName(o.Prefix) {
		return brig.InvalidField("prefix", "%q cannot begin a name", brig.Clip(o.Prefix, 40)).WithHint("use a-z, 0-9 and -")
	}
	if len(o.Agent) == 0 {
		return brig.InvalidField("agent", "there is no agent").WithHint("build brig with `make build`")
	}
	return nil
}

// Values of Options.Storage and Options.Pull.
const (
	storageMemory = "memory"
	storageLayer  = "layer"
	pullMissing   = "missing"
	pullAlways    = "always"
	pullNever     = "never"
)

// setDefaults sets the defaults of missing options.
func (p *Provider) setDefaults() error {
	for _, d := range []struct {
		field *string
		value string
	}{{&p.Host, client.DefaultDockerHost}, {&p.Storage, storageMemory}, {&p.Pull, pullMissing}, {&p.Prefix, "brig"}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(p.DataDir)
	if err != nil {
		return fmt.Errorf("open data folder: %w", err)
	}
	p.DataDir = dir
	if err := os.MkdirAll(filepath.Join(dir, foldersDir), 0o700); err != nil {
		return brig.Errorf(brig.NotInitialized, "the data folder cannot be made").
			WithHint("choose a folder that you may write to with --data-dir").Because(err)
	}
	if p.Instance == "" {
		if p.Instance, err = serverNameOf(dir); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(p.Agent)
	p.volume = p.Prefix + "-agent-" + hex.EncodeToString(sum[:8])
	return nil
}

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (_ brig.Instance, err error) {
	if !brig.ValidName(string(id)) {
		return nil, brig.InvalidField("id", "%q cannot name a sandbox", id)
	}
	if spec.BuildRights {
		return nil, brig.NoBuildRights(Name)
	}
	if len(spec.Volumes) > 0 {
		return nil, brig.NoVolumes(Name)
	}
	if err := p.checkLimits(spec.Limits); err != nil {
		return nil, err
	}
	img, err := p.api.ImageInspect(ctx, spec.Image)
	if err != nil {
		return nil, imageError(err, spec.Image)
	}
	if err := p.populateVolume(ctx, img.ID); err != nil {
		return nil, err
	}
	f := p.folder(id)
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of %s: %w", id, err)
	}
	o := order{
		Version: orderVersion, Hostname: hostname(id, spec), Limits: spec.Limits, Env: spec.Env,
		Main: spec.Command != nil, Lease: lease, Ephemeral: spec.Ephemeral, Uplink: p.mayLink(spec),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.rollback(context.WithoutCancel(ctx), f, o))
		}
	}()
	if o.Container, err = p.createContainer(ctx, p.container(id, o, img.InspectResponse)); err != nil {
		return nil, err
	}
	if err := f.writeOrder(o); err != nil {
		return nil, err
	}
	fills := o.Uplink && p.Storage == storageMemory
	var trust []trustedFile
	if fills {
		if trust, err = p.trustOf(ctx, img.ID, o.Container); err != nil {
			return nil, err
		}
	}
	if _, err := p.api.ContainerStart(ctx, o.Container, client.ContainerStartOptions{}); err != nil {
		return nil, creationError(err)
	}
	i := newInstance(p, id, o)
	i.attach(true)
	main := spec.Command
	if spec.Held {
		i.held, main = main, nil
	}
	if fills {
		if err := i.launch(ctx, nil); err != nil {
			return nil, err
		}
		if err := i.installTrustedFiles(ctx, trust); err != nil {
			return nil, err
		}
	}
	if err := i.launch(ctx, main); err != nil {
		return nil, err
	}
	return i, nil
}

// createContainer creates a container and returns its ID. It does not stop when
// ctx ends, so that the ID of a container that has to be removed is always
// known.
func (p *Provider) createContainer(ctx context.Context, c client.ContainerCreateOptions) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	made, err := p.api.ContainerCreate(ctx, c)
	if err != nil {
		return "", creationError(err)
	}
	return made.ID, nil
}

func hostname(id brig.ID, spec brig.Spec) string {
	if spec.Name != "" {
		return spec.Name
	}
	return string(id)
}

// Recover implements brig.Provider.
func (p *Provider) Recover(ctx context.Context, id brig.ID, _ brig.Handle) (brig.Instance, error) {
	unknown := brig.Errorf(brig.NotFound, "sandbox %s left nothing on this machine", id)
	if !brig.ValidName(string(id)) {
		return nil, unknown
	}
	f := p.folder(id)
	o, ok, err := f.readOrder()
	if err != nil {
		return nil, err
	}
	if !ok {
		// The server that removed the sandbox may have died before it removed
		// the directory.
		if err := os.RemoveAll(f.dir); err != nil {
			return nil, fmt.Errorf("remove what is left of %s: %w", id, err)
		}
		return nil, unknown
	}
	i := newInstance(p, id, o)
	// If the container has ended, record its end before Recover returns.
	look, err := p.api.ContainerInspect(ctx, o.Container, client.ContainerInspectOptions{})
	switch {
	case cerrdefs.IsNotFound(err):
		i.attach(false)
	case err != nil:
		return nil, engineError(err)
	default:
		i.attach(isRunning(look.Container))
	}
	return i, nil
}

// Check implements brig.Checker.
func (p *Provider) Check(ctx context.Context) error {
	if _, err := p.api.Ping(ctx, client.PingOptions{}); err != nil {
		return engineError(err)
	}
	return nil
}

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	c := brig.Capabilities{Name: Name, Isolation: "container", Uplinks: true, Enforces: maps.Clone(p.enforcement)}
	if p.gvisor {
		c.Isolation = "gvisor"
	}
	return c
}
