// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/viplab/viplab/internal/lessons"
	"github.com/viplab/viplab/internal/live/registry"
)

// errLeft is the learner's wish to go on another time.
var errLeft = errors.New("left")

// session leads a learner through a lesson.
type session struct {
	lesson *lessons.Lesson
	shell  lessons.Shell
	lang   string
	w      io.Writer
	colour bool
	read   func(prompt string) (string, error)
	hints  int // of the present step that were shown
}

// teach leads through a lesson, from where the learner has left it.
func (f *learnFlags) teach(ctx context.Context, w io.Writer, l *lessons.Lesson) error {
	// Ctrl-C ends a command that the learner has started, not the lesson.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), unix.SIGTERM, unix.SIGHUP)
	defer stop()
	progress, err := lessons.ReadProgress()
	if err != nil {
		return err
	}
	reached := progress[f.key(l)]
	if f.restart || reached.Steps >= len(l.Steps) {
		reached.Steps = 0
	}
	d, err := needsOf(ctx, []*lessons.Lesson{l})
	if err != nil {
		return err
	}
	if d = d.missing(l); len(d.Findings) > 0 {
		return d.refusal(l, f.lang())
	}
	s := &session{lesson: l, lang: f.lang(), w: w, colour: colours(w), read: lineReader(w)}
	folder, err := s.begin(ctx, w, reached.Steps, f.restart)
	if err != nil {
		return err
	}
	err = s.walk(ctx, reached.Steps, func(done int) error {
		reached.Steps = done
		reached.Finished = reached.Finished || done == len(l.Steps)
		progress[f.key(l)] = reached
		return progress.Write()
	})
	if errors.Is(err, errLeft) || ctx.Err() != nil {
		fmt.Fprintf(w, "\n"+say(s.lang, "left")+"\n", folder.Name)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n"+say(s.lang, "finished")+"\n", folder.Name)
	return end(ctx, folder)
}

// begin finds the lab of the lesson, or starts it and does again what the learner has done.
func (s *session) begin(ctx context.Context, w io.Writer, steps int, restart bool) (registry.Folder, error) {
	name := "learn-" + s.lesson.Name
	folder, err := registry.Find(name)
	if err == nil && (steps == 0 || restart) {
		err = errors.Join(end(ctx, folder), errLeft)
	}
	if err == nil {
		s.shell, err = lessonShell(s.lesson, folder)
		return folder, err
	}
	fmt.Fprintf(w, say(s.lang, "starting")+"\n\n", name)
	if folder, s.shell, err = lessonLab(ctx, s.lesson, name); err != nil {
		return folder, err
	}
	r, err := reportOf(ctx, folder)
	if err != nil {
		return folder, err
	}
	if err := printLab(w, r, folder); err != nil {
		return folder, err
	}
	for _, step := range s.lesson.Steps[:steps] {
		if _, err := s.shell.Do(ctx, step.Run, io.Discard); err != nil {
			return folder, err
		}
	}
	return folder, nil
}

// walk goes through the steps from one on. done notes how many are done.
func (s *session) walk(ctx context.Context, from int, done func(int) error) error {
	text := s.lesson.Text(s.lang)
	fmt.Fprintf(s.w, "\n%s\n\n", lessons.Terminal("# "+text.Title, s.colour))
	fmt.Fprintln(s.w, lessons.Terminal(say(s.lang, "keys"), s.colour))
	for i, part := range text.Parts {
		if i < from {
			continue
		}
		fmt.Fprintf(s.w, "\n%s\n", lessons.Terminal(part.Markdown, s.colour))
		if part.Step == nil {
			continue
		}
		if err := s.do(ctx, part, fmt.Sprintf("%d/%d $ ", i+1, len(s.lesson.Steps))); err != nil {
			return err
		}
		if err := done(i + 1); err != nil {
			return err
		}
	}
	return nil
}

// do lets the learner type until the step is done.
func (s *session) do(ctx context.Context, part lessons.Part, prompt string) error {
	step := part.Step
	s.hints = 0
	if step.Exercise {
		fmt.Fprintf(s.w, "\n%s\n\n", lessons.Terminal(say(s.lang, "exercise"), s.colour))
	} else {
		fmt.Fprintf(s.w, "\n%s\n\n", typed("  $ ", step))
	}
	for {
		line, err := s.read(prompt)
		if err != nil {
			return errLeft
		}
		line = strings.TrimSpace(line)
		same := strings.Join(strings.Fields(line), " ") == strings.Join(strings.Fields(step.Run), " ")
		switch {
		case line == "quit" || line == "exit":
			return errLeft
		case line == "skip":
			_, err := s.shell.Do(ctx, step.Run, io.Discard) // later steps build on it
			return err
		case line == "hint" || line == "" && step.Exercise:
			s.hint(part)
			continue
		case line == "" || same:
			if line == "" {
				fmt.Fprintln(s.w, typed(prompt, step))
			}
			if _, err := s.shell.Do(ctx, step.Run, s.w); err != nil {
				return err
			}
		default:
			if err := s.shell.Interact(ctx, line); err != nil {
				return err
			}
			if len(step.Check) == 0 {
				continue // the learner looks around
			}
		}
		unmet, err := s.shell.Unmet(ctx, step)
		if err != nil {
			return err
		}
		if len(unmet) == 0 {
			if len(step.Check) > 0 {
				fmt.Fprintln(s.w, lessons.Terminal(say(s.lang, "met"), s.colour))
			}
			return nil
		}
		fmt.Fprintf(s.w, say(s.lang, "unmet")+"\n  %s\n", strings.ReplaceAll(unmet[0], "\n", "\n  "))
	}
}

// hint prints the next hint of a step, and the command after the last.
func (s *session) hint(part lessons.Part) {
	if s.hints < len(part.Hints) {
		fmt.Fprintln(s.w, lessons.Terminal(part.Hints[s.hints], s.colour))
		s.hints++
		return
	}
	fmt.Fprintln(s.w, typed("  $ ", part.Step))
}

// typed returns the command of a step behind a prompt, as a shell shows one of several lines.
func typed(prompt string, step *lessons.Step) string {
	more := strings.Repeat(" ", len(prompt)-2) + "> "
	return prompt + strings.ReplaceAll(strings.TrimSpace(step.Run), "\n", "\n"+more)
}

// lineReader returns a function that asks for a line: with editing and a history on a terminal.
func lineReader(w io.Writer) func(prompt string) (string, error) {
	if !isTerminal(os.Stdin) {
		lines := bufio.NewScanner(os.Stdin)
		return func(prompt string) (string, error) {
			fmt.Fprint(w, prompt)
			if !lines.Scan() {
				return "", io.EOF
			}
			return lines.Text(), nil
		}
	}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{os.Stdin, w}, "")
	return func(prompt string) (string, error) {
		fd := int(os.Stdin.Fd())
		state, err := term.MakeRaw(fd)
		if err != nil {
			return "", err
		}
		defer func() { _ = term.Restore(fd, state) }() // nothing is left to do if it fails
		if width, height, err := term.GetSize(fd); err == nil {
			_ = t.SetSize(width, height) // a wrong size is no reason to end
		}
		t.SetPrompt(prompt)
		return t.ReadLine()
	}
}

// sayings are what a session says, by language. English stands in for any other.
var sayings = map[string]map[string]string{
	"en": {
		"starting": "Starting the lab %s.",
		"keys": "Type each command, or press Enter to have it typed. Any other command runs too. " +
			"`hint` helps, `skip` goes on, `quit` leaves.",
		"exercise":    "**Your turn.** Find the command. Enter gives a hint.",
		"met":         "**Checked with packets: right.**",
		"unmet":       "Not yet. The check:",
		"left":        "The lab %[1]s stays, and the lesson goes on here next time. \"viplab down %[1]s\" ends the lab.",
		"finished":    "The lesson is done. The lab %s ends.",
		"lacking":     "The lesson %s needs what this machine lacks:",
		"remedies":    "What to do:",
		"elsewhere":   "Or take a virtual machine: scripts/vm --kernel 6.12, and there viplab learn %s",
		"unavailable": "%s cannot start here: this machine lacks %s. \"viplab learn\" with its name says what to do.",
		"readable":    "To read the lesson without a lab: viplab learn %s --page",
	},
	"ko": {
		"starting": "랩 %s을(를) 시작합니다.",
		"keys": "명령을 직접 입력하거나 Enter를 눌러 실행하세요. 다른 명령도 실행할 수 있습니다. " +
			"`hint`는 힌트, `skip`은 건너뛰기, `quit`은 나가기입니다.",
		"exercise":    "**직접 해 보세요.** 알맞은 명령을 찾으세요. Enter를 누르면 힌트가 나옵니다.",
		"met":         "**패킷으로 확인했습니다. 맞습니다.**",
		"unmet":       "아직 아닙니다. 확인 결과:",
		"left":        "랩 %[1]s은(는) 그대로 남아 있고, 다음에 여기서 이어집니다. 랩을 끝내려면: \"viplab down %[1]s\"",
		"finished":    "레슨을 마쳤습니다. 랩 %s을(를) 끝냅니다.",
		"lacking":     "레슨 %s에 필요한 것이 이 머신에 없습니다.",
		"remedies":    "해결 방법:",
		"elsewhere":   "또는 가상 머신을 쓰세요. scripts/vm --kernel 6.12 를 실행하고 그 안에서: viplab learn %s",
		"unavailable": "%s은(는) 여기서 시작할 수 없습니다. 이 머신에 없는 것: %s. 이름을 붙여 \"viplab learn\"을 실행하면 방법을 알려 줍니다.",
		"readable":    "랩 없이 읽기만 하려면: viplab learn %s --page",
	},
}

func say(lang, key string) string {
	if text, ok := sayings[lang][key]; ok {
		return text
	}
	return sayings["en"][key]
}
