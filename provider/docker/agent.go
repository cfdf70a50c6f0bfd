package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"crypto/rand"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// populateVolume makes sure that the engine has a volume with the agent. If the volume
// exists, it compares the agent's content, because an earlier server may have died
// while it was writing the agent. Concurrent calls wait for the first call, each until
// its context ends.
func (p *Provider) populateVolume(ctx context.Context, image string) (err error) {
	if p.populated.Load() {
		return nil
	}
	select {
	case p.populating <- struct{}{}:
		defer func() { <-p.populating }()
	case <-ctx.Done(): // the engine may be stuck in the other call
		return creationError(context.Cause(ctx))
	}
	if p.populated.Load() {
		return nil
	}
	if _, err := p.api.VolumeCreate(ctx, client.VolumeCreateOptions{Name: p.volume, Labels: map[string]string{labelInstance: ""}}); err != nil {
		return creationError(fmt.Errorf("make the agent's volume: %w", err))
	}
	// This container never runs. It only provides access to the volume.
	made, err := p.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   p.Prefix + "-fill-" + strings.ToLower(rand.Text()),
		Config: &container.Config{Image: image, Entrypoint: []string{"/none"}, NetworkDisabled: true, Labels: map[string]string{labelInstance: p.Instance}},
		HostConfig: &container.HostConfig{
			NetworkMode: "none",
			Mounts:      []mount.Mount{{Type: mount.TypeVolume, Source: p.volume, Target: agentDir, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}},
		},
	})
	if err != nil {
		return creationError(fmt.Errorf("reach the agent's volume: %w", err))
	}
	defer func() {
		_, removeErr := p.api.ContainerRemove(context.WithoutCancel(ctx), made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if removeErr != nil {
			p.Log.WarnContext(ctx, "failed to remove the container that filled a volume", "container", made.ID, "err", removeErr)
		}
	}()
	if has, err := p.hasAgent(ctx, made.ID); err != nil {
		return creationError(err)
	} else if has {
		p.populated.Store(true)
		return nil
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err = w.WriteHeader(&tar.Header{Name: agentName, Mode: 0o555, Size: int64(len(p.Agent)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(p.Agent)
	}
	if err = errors.Join(err, w.Close()); err == nil {
		_, err = p.api.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: agentDir, Content: &b})
	}
	if err != nil {
		return creationError(fmt.Errorf("fill the agent's volume: %w", err))
	}
	p.populated.Store(true)
	return nil
}

// hasAgent reports whether the volume has exactly this agent.
func (p *Provider) hasAgent(ctx context.Context, container string) (bool, error) {
	got, err := p.api.CopyFromContainer(ctx, container, client.CopyFromContainerOptions{SourcePath: agentPath})
	if err != nil {
		if isNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("read the agent's volume: %w", err)
	}
	defer got.Content.Close()
	r := tar.NewReader(got.Content)
	h, err := r.Next()
	if err != nil || h.Typeflag != tar.TypeReg || h.Size != int64(len(p.Agent)) || h.Mode&0o111 == 0 {
		return false, nil
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(len(p.Agent))+1))
	return err == nil && bytes.Equal(b, p.Agent), nil
}
