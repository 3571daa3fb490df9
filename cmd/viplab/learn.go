// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/lab/kernel"
	"github.com/viplab/viplab/internal/lessons"
	"github.com/viplab/viplab/internal/lessons/course"
	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/lab/cluster/images"
	"github.com/viplab/viplab/suite/spec"
)

// learnFlags choose lessons, and what to do with them.
type learnFlags struct {
	folder   string
	language string
	output   string
	check    bool
	record   bool
	page     bool
	restart  bool
}

func newLearn() *cobra.Command {
	var f learnFlags
	cmd := &cobra.Command{
		Use:   "learn [LESSON | all]",
		Short: "Learn how packets find a pod: lessons with real commands in a lab",
		Long: `learn lists the lessons, or leads through one: it starts a lab, explains, lets you type the commands, checks
the result with packets, and ends the lab after the last step. It remembers how far you have come.

-f runs a lesson of your own: docs/lessons/writing.md says how to write one. --check runs lessons as a test and prints
what differs from the recorded output. It leaves out a lesson that needs what this machine lacks, and says so.

Exit code: 0, or 1 if --check finds a difference.`,
		Example: `  viplab learn
  viplab learn services
  viplab learn 2 --lang ko
  viplab learn --check all
  viplab learn -f ./my-lesson --record`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			all, _ := course.All() // what cannot be read is not offered
			names := each(all, func(l *lessons.Lesson) string { return l.Name })
			return append(names, "all"), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, strings.Join(args, "")) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.folder, "filename", "f", "", "folder of a lesson of your own")
	flags.StringVar(&f.language, "lang", "", "language of the texts: en or ko (default: that of $LANG)")
	flags.StringVarP(&f.output, "output", "o", "", "json: the list, or the outcome of --check, for programs")
	flags.BoolVar(&f.check, "check", false, "run as a test, without a terminal")
	flags.BoolVar(&f.record, "record", false, "with -f: run the commands and keep their output in the lesson's folder")
	flags.BoolVar(&f.page, "page", false, "print the lesson as a page of Markdown, with the recorded output")
	flags.BoolVar(&f.restart, "restart", false, "begin the lesson anew, in a new lab")
	cmd.MarkFlagsMutuallyExclusive("check", "record", "page", "restart")
	complete(cmd, "lang", "en", "ko")
	complete(cmd, "output", "json")
	return cmd
}

func (f *learnFlags) run(cmd *cobra.Command, name string) error {
	if f.output != "" && f.output != "json" {
		return fmt.Errorf("-o: %q: want json", f.output)
	}
	if f.record && f.folder == "" {
		return errors.New("--record: want -f, the folder to write to")
	}
	list, err := f.lessons(name)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	switch {
	case f.check:
		return f.checkAll(ctx, cmd.OutOrStdout(), list)
	case f.record:
		return recordLesson(ctx, cmd.OutOrStdout(), list[0], f.folder)
	case f.page && len(list) == 1 && name != "all":
		_, err := io.WriteString(cmd.OutOrStdout(), list[0].Page(f.lang()))
		return err
	case len(list) > 1 && (name != "" || f.page || f.restart):
		return errors.New("want the name of one lesson")
	case name == "" && f.folder == "":
		return f.list(ctx, cmd.OutOrStdout(), list)
	}
	return f.teach(ctx, cmd.OutOrStdout(), list[0])
}

// lang returns the language of the texts.
func (f *learnFlags) lang() string {
	if f.language != "" {
		return f.language
	}
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if value := os.Getenv(name); value != "" {
			return strings.ToLower(value[:min(2, len(value))])
		}
	}
	return "en"
}

// lessons returns the lesson of the folder, or those of a name: all, a part of the name such as services, or 2.
func (f *learnFlags) lessons(name string) ([]*lessons.Lesson, error) {
	if f.folder != "" {
		if name != "" {
			return nil, fmt.Errorf("want either -f or the name of a lesson, not both (%q)", name)
		}
		folder, err := filepath.Abs(f.folder)
		if err != nil {
			return nil, err
		}
		l, err := lessons.Load(os.DirFS(folder), filepath.Base(folder))
		if err == nil {
			l.Folder = folder
		}
		return []*lessons.Lesson{l}, err
	}
	all, err := course.All()
	if err != nil || name == "" || name == "all" {
		return all, err
	}
	for _, l := range all {
		number, rest, _ := strings.Cut(l.Name, "-")
		if slices.Contains([]string{l.Name, rest, number, strings.TrimPrefix(number, "0")}, name) {
			return []*lessons.Lesson{l}, nil
		}
	}
	return nil, fmt.Errorf("there is no lesson %q: there are %s", name,
		strings.Join(each(all, func(l *lessons.Lesson) string { return l.Name }), ", "))
}

// key is what the progress of a lesson is kept under.
func (f *learnFlags) key(l *lessons.Lesson) string {
	if f.folder == "" {
		return l.Name
	}
	if folder, err := filepath.Abs(f.folder); err == nil {
		return folder
	}
	return f.folder
}

// list prints the lessons and how far the learner has come.
func (f *learnFlags) list(ctx context.Context, w io.Writer, all []*lessons.Lesson) error {
	progress, err := lessons.ReadProgress()
	if err != nil {
		return err
	}
	d, err := needsOf(ctx, all)
	if err != nil {
		return err
	}
	if f.output == "json" {
		type entry struct {
			Name     string           `json:"name"`
			Title    string           `json:"title"`
			Steps    int              `json:"steps"`
			Done     int              `json:"done"`
			Finished bool             `json:"finished"`
			Needs    []kernel.Feature `json:"needs,omitempty"`
			Missing  []kernel.Finding `json:"missing,omitempty"` // of the needs
		}
		return printJSON(w, each(all, func(l *lessons.Lesson) entry {
			p := progress[f.key(l)]
			return entry{l.Name, l.Text(f.lang()).Title, len(l.Steps), p.Steps, p.Finished, l.Needs, d.missing(l).Findings}
		}))
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "LESSON\tSTEPS\tDONE\tTITLE")
	var notes []string
	for _, l := range all {
		p := progress[f.key(l)]
		done := fmt.Sprint(p.Steps)
		if p.Finished {
			done = "all"
		}
		if lacks := d.missing(l); len(lacks.Findings) > 0 {
			done = "-"
			notes = append(notes, fmt.Sprintf(say(f.lang(), "unavailable"), l.Name, lacks.features()))
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", l.Name, len(l.Steps), done, l.Text(f.lang()).Title)
	}
	if err := t.Flush(); err != nil || len(notes) == 0 {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	return err
}

func printJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// lessonLab starts the lab of a lesson, and returns its folder and a shell for the commands.
func lessonLab(ctx context.Context, l *lessons.Lesson, name string) (folder registry.Folder, shell lessons.Shell,
	err error) {
	var up upFlags
	holder := &cobra.Command{}
	up.add(holder)
	c := live.Config{Name: name, Content: live.Content{Images: map[string]images.Source{}}}
	for image, source := range l.Lab.Images {
		c.Content.Images[image] = source.At(l.Folder)
	}
	manifests, err := lessonManifests(l)
	errs := []error{err}
	for flag, value := range l.Lab.Flags() {
		if err := holder.Flags().Set(flag, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: lab: %s: %w", lessons.Manifest, flag, err))
		}
	}
	if err := errors.Join(append(errs, up.set(&c))...); err != nil {
		return folder, shell, err
	}
	if err := prepare(ctx, []spec.Proxier{c.Proxier}, os.Stderr); err != nil {
		return folder, shell, err
	}
	if folder, _, err = up.launch(ctx, c); err != nil {
		return folder, shell, err
	}
	shell, err = lessonShell(l, folder)
	return folder, shell, errors.Join(err, applyInOrder(ctx, folder, manifests))
}

func lessonShell(l *lessons.Lesson, folder registry.Folder) (lessons.Shell, error) {
	s, err := l.NewShell(folder.Path, "KUBECONFIG="+folder.File(registry.Kubeconfig), labVariable+"="+folder.Name)
	s.Settle = func(ctx context.Context) error { return settleLesson(ctx, folder) }
	return s, err
}

// lessonManifests returns the manifests of a lesson, each object by itself.
func lessonManifests(l *lessons.Lesson) (out []live.Manifest, err error) {
	var whole []live.Manifest
	for _, file := range l.Lab.Manifests {
		text, err := fs.ReadFile(l.Files, file)
		if err != nil {
			return nil, err
		}
		whole = append(whole, live.Manifest{Source: file, Text: text})
		for _, object := range documentEnd.Split(string(text), -1) {
			out = append(out, live.Manifest{Source: file, Text: []byte(object)})
		}
	}
	_, _, err = live.DecodeKnown(whole, "default") // its errors have the lines of the files
	return out, err
}

// documentEnd ends a document of YAML.
var documentEnd = regexp.MustCompile(`(?m)^---\s*$`)

// applyInOrder creates objects one after the other, so that the pods of a lesson have the same addresses each time.
func applyInOrder(ctx context.Context, folder registry.Folder, manifests []live.Manifest) error {
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer nothing.Close()
	for _, m := range manifests {
		args := live.ApplyArgs{Manifests: []live.Manifest{m}}
		err := request(ctx, folder, control.Request{
			Command: live.Apply, Args: args, Stdio: [3]*os.File{nothing, nothing, nothing},
		})
		if err == nil {
			err = settleLesson(ctx, folder)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settleLesson returns when pods have started or ended, and the programs on the nodes have followed.
func settleLesson(ctx context.Context, folder registry.Folder) error {
	return ask(ctx, folder, live.Settle, live.SettleArgs{Patient: true}, nil)
}
