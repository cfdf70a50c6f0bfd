package rest

import (
	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func toBuild(in wire.BuildRequest) brig.ImageBuild {
	return brig.ImageBuild{Name: in.Name, Packages: in.Packages, Suite: in.Suite}
}

func fromImage(i *brig.Image) wire.Image {
	names := i.Names
	if names == nil {
		names = []string{}
	}
	return wire.Image{Digest: i.Digest, Names: names, Size: i.Size, Files: i.Files, Created: i.Created, Source: i.Source}
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
