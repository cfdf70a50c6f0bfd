package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/image"
)

// Image implements brig.Imager. It looks up an image at the engine by name or
// digest, and makes the engine pull the image if the options require this. The
// returned digest is the value for Spec.Image.
func (p *Provider) Image(ctx context.Context, name string) (*brig.Image, error) {
	if name == brig.HostImage {
		if p.Options.Image == "" {
			return nil, brig.InvalidField("image", "none is named, and the provider has none for that").
				WithHint("name an image, or set the provider's image: brig provider configure %s --set image=NAME", Name)
		}
		name = p.Options.Image
	}
	named, err := reference.ParseDockerRef(name)
	if strings.HasPrefix(name, "sha256:") {
		return p.inspect(ctx, name)
	}
	if err != nil {
		return nil, brig.InvalidField("image", "%q names no image", brig.Clip(name, 200)).WithHint("give a reference as docker has them").Because(err)
	}
	img, err := p.inspect(ctx, name)
	if p.Pull == pullAlways || p.Pull == pullMissing && brig.KindOf(err) == brig.NotFound {
		if err := p.pull(ctx, named); err != nil {
			return nil, err
		}
		return p.inspect(ctx, name)
	}
	return img, err
}

// pull makes the engine resolve a name to a digest at the registry, pull that
// digest, and tag it with the name.
func (p *Provider) pull(ctx context.Context, named reference.Named) error {
	auth, err := p.login(reference.Domain(named))
	if err != nil {
		return err
	}
	canonical, ok := named.(reference.Canonical)
	if !ok {
		inspected, err := p.api.DistributionInspect(ctx, named.String(), client.DistributionInspectOptions{EncodedRegistryAuth: auth})
		if err != nil {
			return pullError(err, named)
		}
		if canonical, err = reference.WithDigest(reference.TrimNamed(named), inspected.Descriptor.Digest); err != nil {
			return pullError(err, named)
		}
	}
	got, err := p.api.ImagePull(ctx, canonical.String(), client.ImagePullOptions{RegistryAuth: auth})
	if err == nil {
		err = got.Wait(ctx)
	}
	if err != nil {
		return pullError(err, named)
	}
	if _, tagged := named.(reference.Tagged); tagged {
		if _, err := p.api.ImageTag(ctx, client.ImageTagOptions{Source: canonical.String(), Target: named.String()}); err != nil {
			return engineError(err)
		}
	}
	return nil
}

// login returns the engine's credentials for a registry.
func (p *Provider) login(domain string) (string, error) {
	l, ok := p.Logins[domain]
	if !ok {
		return "", nil
	}
	s, err := authconfig.Encode(registry.AuthConfig{Username: l.Username, Password: l.Password, ServerAddress: domain})
	if err != nil {
		return "", fmt.Errorf("encode a login: %w", err)
	}
	return s, nil
}

func pullError(err error, named reference.Named) error {
	if isNotFound(err) || strings.Contains(err.Error(), "manifest unknown") || strings.Contains(err.Error(), "not found") {
		return imageError(errors.Join(notFoundError{}, err), named.String())
	}
	return brig.Errorf(brig.Unavailable, "the engine cannot pull %q", brig.Clip(named.String(), 200)).
		WithHint("see that the engine reaches the registry, and that the provider's login for it is right").Because(err)
}

// notFoundError is a not-found error for imageError.
type notFoundError struct{}

func (notFoundError) Error() string { return "not there" }
func (notFoundError) NotFound()     {}

// inspect returns the description of an image that the engine has.
func (p *Provider) inspect(ctx context.Context, name string) (*brig.Image, error) {
	inspected, err := p.api.ImageInspect(ctx, name)
	if err != nil {
		return nil, imageError(err, name)
	}
	raw, err := json.Marshal(map[string]any{
		"os": inspected.Os, "architecture": inspected.Architecture, "variant": inspected.Variant, "config": inspected.Config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": inspected.RootFS.Layers},
	})
	if err != nil {
		return nil, fmt.Errorf("read an image's configuration: %w", err)
	}
	config, notes, err := image.ReadConfig(raw)
	if err != nil {
		return nil, err
	}
	out := &brig.Image{
		Digest: inspected.ID, Names: inspected.RepoTags, Size: inspected.Size, Source: "engine", Config: config, Notes: notes,
	}
	if inspected.Config != nil {
		out.Config.User, out.Config.Account = accountOf(inspected.Config.User)
		if len(inspected.Config.Volumes) > 0 && len(volumesOf(inspected.InspectResponse)) > 0 {
			out.Notes = append(out.Notes, "its volumes are empty and read-only")
		}
	}
	out.Created, _ = time.Parse(time.RFC3339Nano, inspected.Created)
	if len(inspected.RepoDigests) > 0 {
		if _, d, ok := strings.Cut(inspected.RepoDigests[0], "@"); ok {
			out.Manifest = d
		}
	}
	return out, nil
}

// accountOf maps the USER of an image's configuration to the name of a
// sandbox's user. For a numeric USER that is neither root nor reserved, it also
// returns the account "uid:gid". It returns no account for a user name, which
// can only be resolved with the image's own files.
func accountOf(user string) (name, account string) {
	uid, gid, _ := strings.Cut(user, ":")
	switch uid {
	case "":
		return "", ""
	case "0", "root":
		return "root", ""
	}
	n, m, ok := wire.ParseAccount(uid + ":" + cmp.Or(gid, uid))
	if !ok || n == 1000 {
		return "user", ""
	}
	return "user", fmt.Sprintf("%d:%d", n, m)
}
