package rest

import (
	"reflect"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func toBuild(in wire.BuildRequest) brig.ImageBuild {
	return brig.ImageBuild{Name: in.Name, Packages: in.Packages, Suite: in.Suite}
}

func toPull(in wire.PullRequest) brig.ImagePull { return brig.ImagePull(in) }

func fromImage(i *brig.Image) wire.Image {
	names := i.Names
	if names == nil {
		names = []string{}
	}
	return wire.Image{
		Digest: i.Digest, Names: names, Size: i.Size, Files: i.Files, Created: i.Created, Source: i.Source,
		Manifest: i.Manifest, Config: fromImageConfig(i.Config), Notes: i.Notes,
	}
}

// fromImageConfig is nil for an image that says nothing.
func fromImageConfig(c brig.ImageConfig) *wire.ImageConfig {
	if reflect.ValueOf(c).IsZero() {
		return nil
	}
	out := wire.ImageConfig(c)
	return &out
}

func fromImages(list []*brig.Image) wire.Images {
	out := wire.Images{Images: []wire.Image{}}
	for _, i := range list {
		out.Images = append(out.Images, fromImage(i))
	}
	return out
}

func fromProgress(p brig.Progress) wire.Progress {
	return wire.Progress{Step: p.Step, Done: p.Done, Total: p.Total}
}
