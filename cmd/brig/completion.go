package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// completionTimeout bounds how long the completion of a name may take.
const completionTimeout = 3 * time.Second

// names is a function that lists the names of one kind of object, for completion.
type names func(context.Context, brig.Service) ([]string, error)

// completion completes names on the command line.
type completion struct{ c *cli }

// registerNames registers completion functions for the arguments and flags whose values are names
// of sandboxes, images, tenants, secrets and other objects.
func (o completion) registerNames(root *cobra.Command) {
	arguments := map[string]names{
		"workspace commit": listSandboxNames, "image get": listImageNames, "image rm": listImageNames, "image tag": listImageNames,
		"tenant get": listTenantNames, "tenant update": listTenantNames, "tenant rm": listTenantNames,
		"secret set": listSecretNames, "secret rm": listSecretNames, "key revoke": listKeyIDs, "session rm": listSessionIDs, "audit replay": listSandboxNames,
		"provider describe": listProviderIDs, "provider configure": listProviderIDs, "provider test": listProviderIDs, "provider activate": listProviderIDs, "provider rm": listProviderIDs,
		"sandbox ls": listSandboxNames,
	}
	for _, name := range []string{"get", "exec", "shell", "code", "execs", "start", "ps", "attach", "signal", "forward", "logs", "extend", "egress", "attest", "stop", "kill", "rm"} {
		arguments["sandbox "+name] = listSandboxNames
	}
	for _, name := range []string{"create", "ls", "interrupt", "restart", "rm"} {
		arguments["sandbox context "+name] = listSandboxNames
	}
	for _, name := range []string{"versions", "files", "cat", "diff", "restore", "rm"} {
		arguments["workspace "+name] = listWorkspaceNames
	}
	for _, name := range []string{"show", "logs", "cancel", "tag", "untag", "rm"} {
		arguments["template "+name] = listTemplateNames
	}
	for _, name := range []string{"files", "cat", "put", "rm-file", "rm"} {
		arguments["volume "+name] = listVolumeNames
	}
	flags := map[string]names{
		"image": listImageNames, "tenant": listTenantNames, "secret": listSecretNames, "template": listTemplateNames, "provider": listProviderIDs,
		"sandbox": listSandboxNames, "workspace": listWorkspaceNames, "volume": listVolumeNames,
	}
	if !o.c.completing {
		return // cobra would never release the flag functions
	}
	forEachCommand(root, func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
		if list, ok := arguments[path]; ok && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = o.completeNames(list, !acceptsMany(cmd))
		}
		for flag, list := range flags {
			if cmd.LocalNonPersistentFlags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, o.completeNames(list, false)) // fails only if the flag has a function already
			}
		}
	})
}

// acceptsMany reports whether a command accepts any number of names.
func acceptsMany(cmd *cobra.Command) bool {
	names := argumentsOf(cmd)
	return len(names) == 1 && strings.Contains(cmd.Use, names[0]+"…")
}

// completeNames returns a completion function for names. If once is set, only
// the first argument is a name. If the service is unreachable, the function
// returns no completions.
func (o completion) completeNames(list names, once bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if once && len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		svc, ctx, done, err := o.c.openService(ctx, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer done()
		found, err := list(ctx, svc)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf returns a function that lists names. The function all calls the service. The function
// name returns an item's name, with an optional description for the shell.
func namesOf[T any](all func(context.Context, brig.Service) ([]T, error), name func(T) string) names {
	return func(ctx context.Context, svc brig.Service) (out []string, err error) {
		list, err := all(ctx, svc)
		for _, item := range list {
			out = append(out, name(item))
		}
		return out, err
	}
}

func listSandboxNames(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]*brig.Sandbox, error) {
		page, err := svc.List(ctx, brig.ListOptions{Limit: 100})
		if err != nil {
			return nil, err
		}
		return page.Sandboxes, nil
	}, func(s *brig.Sandbox) string { return sanitizeCell(s.Spec.Name) })(ctx, svc)
}

func listImageNames(ctx context.Context, svc brig.Service) (out []string, err error) {
	all, err := svc.Images(ctx)
	for _, i := range all {
		for _, name := range i.Names {
			out = append(out, sanitizeCell(name))
		}
	}
	return out, err
}

func listTenantNames(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]*brig.Tenant, error) { return svc.Tenants(ctx) },
		func(t *brig.Tenant) string { return sanitizeCell(t.Name) })(ctx, svc)
}

func listSecretNames(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]*brig.Secret, error) { return svc.Secrets(ctx) },
		func(s *brig.Secret) string { return sanitizeCell(s.Name) })(ctx, svc)
}

func listWorkspaceNames(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]*brig.Workspace, error) { return svc.Workspaces(ctx) },
		func(w *brig.Workspace) string { return sanitizeCell(w.Name) })(ctx, svc)
}

func listVolumeNames(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]*brig.Volume, error) { return svc.Volumes(ctx) },
		func(v *brig.Volume) string { return sanitizeCell(v.Name) })(ctx, svc)
}

func listTemplateNames(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]brig.Template, error) { return svc.Templates(ctx) },
		func(t brig.Template) string { return sanitizeCell(t.Name) })(ctx, svc)
}

func listProviderIDs(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]brig.ProviderInfo, error) { return svc.Providers(ctx) },
		func(p brig.ProviderInfo) string { return sanitizeCell(p.ID) })(ctx, svc)
}

func listKeyIDs(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]*brig.Key, error) { return svc.Keys(ctx, "") },
		func(k *brig.Key) string {
			return cobra.CompletionWithDesc(sanitizeCell(k.ID), sanitizeCell(k.Actor.Name))
		})(ctx, svc)
}

func listSessionIDs(ctx context.Context, svc brig.Service) ([]string, error) {
	return namesOf(func(ctx context.Context, svc brig.Service) ([]*brig.Session, error) { return svc.Sessions(ctx, "") },
		func(s *brig.Session) string {
			return cobra.CompletionWithDesc(sanitizeCell(s.ID), sanitizeCell(s.Actor.Name))
		})(ctx, svc)
}
