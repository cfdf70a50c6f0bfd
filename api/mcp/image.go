package mcp

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

type nothing struct{}

type pullIn struct {
	Ref string `json:"ref" jsonschema:"for example python:3.11-slim"`
}

type imageOut struct {
	Digest string   `json:"digest"`
	Names  []string `json:"names"`
	Size   int64    `json:"size" jsonschema:"in bytes, unpacked"`
	Source string   `json:"source"`
}

type imagesOut struct {
	Images []imageOut `json:"images"`
}

type templateOut struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

type templatesOut struct {
	Templates []templateOut `json:"templates"`
}

func (d *toolServer) listImages(ctx context.Context, _ *mcp.CallToolRequest, _ *nothing) (*imagesOut, error) {
	list, err := d.service.Images(ctx)
	if err != nil {
		return nil, err
	}
	out := &imagesOut{Images: []imageOut{}}
	for _, i := range list {
		out.Images = append(out.Images, fromImage(i))
	}
	return out, nil
}

func (d *toolServer) pullImage(ctx context.Context, req *mcp.CallToolRequest, in *pullIn) (*imageOut, error) {
	reporter, stop := reportProgress(ctx, req)
	defer stop()
	i, err := d.service.PullImage(ctx, brig.ImagePull{Ref: in.Ref}, reporter.onStep)
	if err != nil {
		return nil, err
	}
	out := fromImage(i)
	return &out, nil
}

func (d *toolServer) listTemplates(ctx context.Context, _ *mcp.CallToolRequest, _ *nothing) (*templatesOut, error) {
	list, err := d.service.Templates(ctx)
	if err != nil {
		return nil, err
	}
	out := &templatesOut{Templates: []templateOut{}}
	for _, t := range list {
		out.Templates = append(out.Templates, templateOut{t.Name, t.Fill().Image})
	}
	return out, nil
}

func fromImage(i *brig.Image) imageOut {
	return imageOut{Digest: i.Digest, Names: append([]string{}, i.Names...), Size: i.Size, Source: i.Source}
}
