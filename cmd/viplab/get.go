// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/live/kube"
	"github.com/viplab/viplab/internal/live/registry"
)

// getFlags choose objects of a lab and how to print them.
type getFlags struct {
	of       placeFlags
	all      bool
	output   string
	selector string
}

func newGet() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "get KIND[,KIND...] [NAME...]",
		Short: "Print objects of a lab, as kubectl does",
		Example: `  viplab get pods,svc -A
  viplab get endpointslices -l kubernetes.io/service-name=web -o yaml
  viplab get deploy/web`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: f.of.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := f.of.client()
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), client, args, cmd.OutOrStdout())
		},
	}
	f.of.add(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "objects of all namespaces")
	flags.StringVarP(&f.output, "output", "o", "", "wide, yaml, json or name (default: a table)")
	flags.StringVarP(&f.selector, "selector", "l", "", "only objects with these labels, such as app=web")
	complete(cmd, "output", "wide", "yaml", "json", "name")
	return cmd
}

// client returns a client of the API of the lab that the flags choose.
func (f *placeFlags) client() (*kube.Client, error) {
	l, err := f.lab.find()
	if err != nil {
		return nil, err
	}
	return kube.Open(l.File(registry.Kubeconfig))
}

// wanted are objects of one kind that the command line names: one, or all.
type wanted struct {
	resource *kube.Resource
	name     string
}

// parseWanted reads KIND NAME..., KIND,KIND and KIND/NAME....
func parseWanted(all []kube.Resource, args []string) ([]wanted, error) {
	var out []wanted
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			kind, name, _ := strings.Cut(arg, "/")
			r, err := kube.Find(all, kind)
			if err != nil {
				return nil, err
			}
			out = append(out, wanted{r, name})
		}
		return out, nil
	}
	for kind := range strings.SplitSeq(args[0], ",") {
		if kind == "all" && len(args) == 1 {
			out = append(out, inCategory(all, kind)...)
			continue
		}
		r, err := kube.Find(all, kind)
		if err != nil {
			return nil, err
		}
		for _, name := range args[1:] {
			out = append(out, wanted{r, name})
		}
		if len(args) == 1 {
			out = append(out, wanted{r, ""})
		}
	}
	return out, nil
}

// inCategory returns all objects of a category of kinds.
func inCategory(all []kube.Resource, category string) []wanted {
	var out []wanted
	for i := range all {
		if slices.Contains(all[i].Categories, category) {
			out = append(out, wanted{&all[i], ""})
		}
	}
	return out
}

func (f *getFlags) run(ctx context.Context, c *kube.Client, args []string, w io.Writer) error {
	all, err := c.Resources(ctx)
	if err != nil {
		return err
	}
	found, err := parseWanted(all, args)
	if err != nil {
		return err
	}
	var errs []error
	for i, x := range found {
		if i > 0 && f.output != "name" {
			fmt.Fprintln(w, map[bool]string{true: "---"}[f.output == "yaml"])
		}
		errs = append(errs, f.print(ctx, c, x, len(found) > 1, w))
	}
	return errors.Join(errs...)
}

// path returns the path of the wanted objects.
func (f *getFlags) path(x wanted) string {
	namespace := f.of.namespace
	if f.all && x.name == "" {
		namespace = ""
	}
	path := x.resource.Path(namespace, x.name)
	if f.selector != "" {
		path += "?" + url.Values{"labelSelector": {f.selector}}.Encode()
	}
	return path
}

func (f *getFlags) print(ctx context.Context, c *kube.Client, x wanted, many bool, w io.Writer) error {
	switch f.output {
	case "yaml", "json":
		o, err := c.Object(ctx, f.path(x))
		if err != nil {
			return err
		}
		return encode(w, f.output, o)
	case "", "wide", "name":
		t, err := c.Table(ctx, f.path(x))
		if err != nil {
			return err
		}
		return f.table(t, x.resource, many, w)
	}
	return fmt.Errorf("--output: %q: want wide, yaml, json or name", f.output)
}

// table prints the rows. With several kinds, names have the kind before them.
func (f *getFlags) table(t *metav1.Table, r *kube.Resource, many bool, w io.Writer) error {
	if len(t.Rows) == 0 && f.output != "name" {
		_, err := fmt.Fprintf(w, "No %s found.\n", r.Name)
		return err
	}
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if f.output != "name" {
		fmt.Fprintln(out, strings.Join(f.header(t), "\t"))
	}
	for _, row := range t.Rows {
		var meta metav1.PartialObjectMetadata
		if err := json.Unmarshal(row.Object.Raw, &meta); err != nil {
			return err
		}
		name := fmt.Sprintf("%s/%s", r.SingularName, meta.Name)
		if f.output == "name" {
			fmt.Fprintln(out, name)
			continue
		}
		var cells []string
		if f.all && r.Namespaced {
			cells = append(cells, meta.Namespace)
		}
		for i, cell := range row.Cells {
			if i == 0 && many {
				cell = name
			}
			if f.shows(t.ColumnDefinitions[i]) {
				cells = append(cells, fmt.Sprint(cell))
			}
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
}

func (f *getFlags) header(t *metav1.Table) []string {
	var names []string
	var meta metav1.PartialObjectMetadata
	if json.Unmarshal(t.Rows[0].Object.Raw, &meta) == nil && f.all && meta.Namespace != "" {
		names = append(names, "NAMESPACE")
	}
	for _, c := range t.ColumnDefinitions {
		if f.shows(c) {
			names = append(names, strings.ToUpper(c.Name))
		}
	}
	return names
}

// shows reports whether a column is printed. Those of a lower priority are for -o wide.
func (f *getFlags) shows(c metav1.TableColumnDefinition) bool {
	return c.Priority == 0 || f.output == "wide"
}
