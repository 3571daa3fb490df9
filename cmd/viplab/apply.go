// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/kube"
	"github.com/viplab/viplab/lab/cluster/store"
)

func newApply() *cobra.Command {
	var of placeFlags
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE...",
		Short: "Create or change objects of a lab",
		Long: `apply creates or changes the objects of manifests: all of them, or none if one is wrong. It skips objects
of kinds that it does not know, with a warning. It returns when the programs on the nodes have programmed the change.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := of.lab.find()
			if err != nil {
				return err
			}
			manifests, err := readManifests(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			args := live.ApplyArgs{Manifests: manifests, Namespace: of.namespace}
			if err := ask(cmd.Context(), l, live.Apply, args, nil); err != nil {
				return err
			}
			return ask(cmd.Context(), l, live.Settle, nil, nil)
		},
	}
	addFiles(cmd, &files)
	of.add(cmd)
	return cmd
}

// addFiles adds the flag for manifests, which must be given.
func addFiles(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringSliceVarP(files, "filename", "f", nil, "manifest, YAML or JSON; - is the standard input")
}

func readManifests(files []string, stdin io.Reader) ([]live.Manifest, error) {
	if len(files) == 0 {
		return nil, errors.New("want -f FILE")
	}
	var out []live.Manifest
	var errs []error
	for _, file := range files {
		m, err := readManifest(file, stdin)
		out, errs = append(out, m), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// readManifest reads a manifest. Errors about one of the standard input say so.
func readManifest(file string, stdin io.Reader) (live.Manifest, error) {
	text, err := readFile(file, stdin)
	if file == "-" {
		file = "standard input"
	}
	return live.Manifest{Source: file, Text: text}, err
}

func newDelete() *cobra.Command {
	var of placeFlags
	var files []string
	cmd := &cobra.Command{
		Use:               "delete (-f FILE... | KIND NAME...)",
		Short:             "Delete objects of a lab",
		ValidArgsFunction: of.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(files) == 0) == (len(args) == 0) {
				return errors.New("want either -f FILE or KIND NAME")
			}
			client, err := of.client()
			if err != nil {
				return err
			}
			all, err := client.Resources(cmd.Context())
			if err != nil {
				return err
			}
			paths, err := of.toDelete(all, args, files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			var errs []error
			for _, d := range paths {
				err := client.Delete(cmd.Context(), d.path)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s deleted\n", d.name)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
	addFiles(cmd, &files)
	of.add(cmd)
	return cmd
}

// doomed is an object to delete.
type doomed struct{ name, path string }

// toDelete returns the objects that the command line names, or those of manifests, the last one first.
func (f *placeFlags) toDelete(all []kube.Resource, args, files []string, stdin io.Reader) ([]doomed, error) {
	var out []doomed
	if len(args) > 0 {
		found, err := parseWanted(all, args)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if x.name == "" {
				return nil, errors.New("want the names of the objects to delete")
			}
			out = append(out, doomed{x.resource.Name + "/" + x.name, x.resource.Path(f.namespace, x.name)})
		}
		return out, nil
	}
	manifests, err := readManifests(files, stdin)
	if err != nil {
		return nil, err
	}
	objects, _, err := live.DecodeKnown(manifests, f.namespace) // what apply has skipped is not there
	if err != nil {
		return nil, err
	}
	for i := len(objects) - 1; i >= 0; i-- {
		o := objects[i]
		r, err := kube.Find(all, string(store.ResourceOf(o).Kind))
		if err != nil {
			return nil, err
		}
		out = append(out, doomed{r.Name + "/" + o.GetName(), r.Path(o.GetNamespace(), o.GetName())})
	}
	return out, nil
}

func newLogs() *cobra.Command {
	var of placeFlags
	var container string
	var follow, previous, timestamps bool
	var tail int
	cmd := &cobra.Command{
		Use:               "logs POD",
		Short:             "Print what the program of a pod has printed",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: of.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := of.client()
			if err != nil {
				return err
			}
			q := url.Values{
				"container": {container}, "follow": {strconv.FormatBool(follow)},
				"previous": {strconv.FormatBool(previous)}, "timestamps": {strconv.FormatBool(timestamps)},
			}
			if container == "" {
				q.Del("container")
			}
			if tail >= 0 {
				q.Set("tailLines", strconv.Itoa(tail))
			}
			pod := of.place(args[0]).Pod()
			path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log?%s", pod.Namespace, pod.Name, q.Encode())
			text, err := client.Text(cmd.Context(), path)
			if err != nil {
				return err
			}
			defer text.Close()
			if _, err = io.Copy(cmd.OutOrStdout(), text); cmd.Context().Err() != nil {
				return exitCode(130) // as a shell says of a program that Ctrl-C has ended
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&container, "container", "c", "", "container of the pod (default: the pod's default one)")
	flags.BoolVarP(&follow, "follow", "f", false, "go on until the container ends")
	flags.BoolVarP(&previous, "previous", "p", false, "of the container before its last restart")
	flags.BoolVar(&timestamps, "timestamps", false, "with the time of each line")
	flags.IntVar(&tail, "tail", -1, "only the last lines (default: all)")
	of.add(cmd)
	return cmd
}
