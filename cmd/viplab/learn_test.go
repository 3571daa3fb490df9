// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lessons/course"
)

// Every command of every lesson runs, and prints what the pages say. The texts of all languages share the commands.
// Lessons that this machine cannot run are skipped here, and so run in the virtual machines of "make test".
func TestLessonsInALab(t *testing.T) {
	all, err := course.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		t.Run(l.Name, func(t *testing.T) {
			code, stdout, stderr := outcome(t, "learn", "--check", l.Name)
			if _, why, leftOut := strings.Cut(stdout, "left out: "); leftOut {
				t.Skip(strings.TrimSpace(why))
			}
			if code != 0 {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
	nothingLeft(t)
}

// mine writes a lesson of two steps, and returns its folder.
func mine(t *testing.T) string {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	folder := filepath.Join(t.TempDir(), "mine")
	for name, text := range map[string]string{
		"lesson.yaml": `
lab: {nodes: 1, ip: 4, manifests: [box.yaml]}
steps:
  - {id: note, run: echo noted >note.txt}
  - id: serve
    run: kubectl apply -f web.yaml
    exercise: true
    check: [{run: 'viplab probe box web', want: 'Reply by default/web'}]
  - {id: say, run: cat note.txt}
`,
		"en.md": "# My lesson\n\nText of the start.\n\n{{step note}}\n\nServe it.\n\n{{step serve}}\n\n" +
			"{{hint serve}} Apply a file.\n\n{{step say}}\n\nText of the end.\n",
		"box.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: box}\nspec: {containers: [{name: box, image: pause}]}\n",
		"web.yaml": `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: web, image: nginx, ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`,
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// types runs a lesson with lines as input, and returns what it prints.
func types(t *testing.T, folder, input string) string {
	t.Helper()
	cmd := viplab(t, "learn", "-f", folder)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in:\n%s", want, text)
		}
	}
}

func TestLearn(t *testing.T) {
	folder := mine(t)
	t.Cleanup(func() { down("learn-mine") })
	// Enter runs the command. The exercise is not solved by another one, and Enter gives a hint.
	out := types(t, folder, "\n\necho other\nquit\n")
	contains(t, out, "My lesson", "Text of the start.", "1/3 $ echo noted", "Apply a file.", "Not yet", "viplab down learn-mine")
	contains(t, succeeds(t, "learn", "-f", folder, "-o", "json", "--check"), `"passed": true`)

	out = types(t, folder, "kubectl apply -f web.yaml\n\n")
	contains(t, out, "Serve it.", "Checked with packets", "noted\n", "Text of the end.", "The lesson is done")
	if strings.Contains(out, "Text of the start.") {
		t.Errorf("the lesson begins anew:\n%s", out)
	}
	nothingLeft(t)
}

func TestALessonGoesOnInANewLab(t *testing.T) {
	folder := mine(t)
	t.Cleanup(func() { down("learn-mine") })
	types(t, folder, "\nskip\nquit\n")
	succeeds(t, "down", "learn-mine")
	contains(t, types(t, folder, "\n"), "3/3 $ cat note.txt", "noted", "The lesson is done")
	contains(t, types(t, folder, "quit\n"), "1/3 $")
	succeeds(t, "down", "learn-mine")
	nothingLeft(t)
}

func TestALessonIsRecordedAndChecked(t *testing.T) {
	folder := mine(t)
	contains(t, succeeds(t, "learn", "-f", folder, "--record"), "say: new output")
	contains(t, succeeds(t, "learn", "-f", folder, "--record"), "say: as recorded")
	contains(t, succeeds(t, "learn", "-f", folder, "--page"), "$ cat note.txt\nnoted\n")
	if err := os.WriteFile(filepath.Join(folder, "output", "say.txt"), []byte("something else\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := outcome(t, "learn", "-f", folder, "--check")
	if code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, stderr)
	}
	contains(t, stdout, "✗  mine", "step say differs", "- something else", "+ noted")
	nothingLeft(t)
}

func TestALessonThatCannotRunHere(t *testing.T) {
	folder := mine(t)
	file := filepath.Join(folder, "lesson.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append([]byte("needs: [ipvsadm, veth]"), text...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "") // no program is found
	refused(t, "learn -f "+folder, "The lesson mine needs", "ipvsadm: not installed", "apt-get install ipvsadm", "--page")
	refused(t, "learn --lang ko -f "+folder, "레슨 mine에 필요한 것")
	code, stdout, stderr := outcome(t, "learn", "-f", folder, "--check")
	if code != 2 {
		t.Errorf("exit code %d, want 2: nothing was checked", code)
	}
	contains(t, stdout, "–  mine", "left out: it needs ipvsadm, which this machine lacks")
	contains(t, stderr, "no lesson was checked")
	contains(t, succeeds(t, "learn", "-f", folder, "--record"), "left out: it needs ipvsadm")
	nothingLeft(t)
}

func TestListOfLessons(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	contains(t, succeeds(t, "learn"), "01-pods", "Pod to pod")
	contains(t, succeeds(t, "learn", "--lang", "ko"), "파드에서 파드로")
	contains(t, succeeds(t, "learn", "-o", "json"), `"name": "01-pods"`)
	contains(t, succeeds(t, "learn", "pods", "--page", "--lang", "ko"), "# 파드에서 파드로")
	refused(t, "learn nosuch", `there is no lesson "nosuch"`, "01-pods")
	refused(t, "learn --record", "--record: want -f")
	refused(t, "learn -f /nonexistent", "there is no lesson.yaml")
	refused(t, "learn -o yaml", "want json")
}
