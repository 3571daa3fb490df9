// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/kube"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/internal/suite/engine"
)

// completeLabs offers the names of the labs that run, except those that are on the command line already.
func completeLabs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	labs, _ := registry.List() // what cannot be listed is not offered
	names := each(labs, func(l registry.Folder) string { return l.Name })
	given := func(name string) bool { return slices.Contains(args, name) }
	return slices.DeleteFunc(names, given), cobra.ShellCompDirectiveNoFileComp
}

// complete offers the places of the lab for the first arguments of a command.
func (f *placeFlags) complete(arguments int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if l, err := f.lab.find(); err == nil && len(args) < arguments {
			_ = ask(cmd.Context(), l, live.Places, f.place(""), &names) // a lab that does not answer offers nothing
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeProbe offers the places of the lab, and as the target Services, too.
func (f *placeFlags) completeProbe(cmd *cobra.Command, args []string, word string) ([]string,
	cobra.ShellCompDirective) {
	names, how := f.complete(2)(cmd, args, word)
	if len(args) == 1 {
		for _, name := range f.objects(cmd, "services") {
			names = append(names, "svc/"+name)
		}
	}
	return names, how
}

// completePods offers the pods of the namespace for the first argument.
func (f *placeFlags) completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		names = f.objects(cmd, "pods")
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeObjects offers kinds of objects, and behind one the names of its objects: KIND NAME and KIND/NAME.
func (f *placeFlags) completeObjects(cmd *cobra.Command, args []string, word string) ([]string,
	cobra.ShellCompDirective) {
	const how = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 && !strings.Contains(args[0], "/") {
		return f.objects(cmd, args[0]), how
	}
	if kind, _, ok := strings.Cut(word, "/"); ok {
		return each(f.objects(cmd, kind), func(name string) string { return kind + "/" + name }), how
	}
	client, err := f.client()
	if err != nil {
		return nil, how
	}
	var kinds []string
	all, _ := client.Resources(cmd.Context()) // an API that does not answer offers nothing
	for _, r := range all {
		kinds = append(kinds, r.Name)
	}
	return kinds, how
}

// objects returns the names of the objects of a kind, or nothing if they cannot be listed.
func (f *placeFlags) objects(cmd *cobra.Command, kind string) []string {
	client, err := f.client()
	if err != nil {
		return nil
	}
	all, err := client.Resources(cmd.Context())
	if err != nil {
		return nil
	}
	r, err := kube.Find(all, kind)
	if err != nil {
		return nil
	}
	list, err := client.Object(cmd.Context(), r.Path(f.namespace, ""))
	if err != nil {
		return nil
	}
	var names []string
	items, _ := list["items"].([]any)
	for _, item := range items {
		object, _ := item.(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		if name, ok := meta["name"].(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// completeNodes offers the nodes of the lab that runs, or those of a conformance run.
func (f *labFlag) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const how = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, how
	}
	l, err := f.find()
	if err != nil {
		return engine.NodeNames(), how
	}
	r, err := reportOf(cmd.Context(), l)
	if err != nil {
		return nil, how
	}
	var names []string
	for _, m := range r.Machines {
		if len(m.Pods) > 0 {
			names = append(names, m.Name)
		}
	}
	return names, how
}
