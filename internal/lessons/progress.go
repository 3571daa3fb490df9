// SPDX-License-Identifier: Apache-2.0

package lessons

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Progress is how far a learner has come, by lesson.
type Progress map[string]Reached

// Reached is how far a learner has come in a lesson.
type Reached struct {
	// Steps is the number of steps that are done since the lesson began.
	Steps int `json:"steps"`
	// Finished reports whether the learner has reached the end once.
	Finished bool `json:"finished,omitempty"`
}

// progressFile returns the path of the file that keeps the progress ($XDG_STATE_HOME of the XDG Base Directory
// Specification).
func progressFile() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "viplab", "lessons.json"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "viplab", "lessons.json"), err
}

// ReadProgress returns the progress of this user. It is empty if there is none.
func ReadProgress() (Progress, error) {
	file, err := progressFile()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Progress{}, nil
	}
	p := Progress{}
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("read the progress of lessons: %s: %w: remove the file to begin anew", file, err)
	}
	return p, nil
}

// Write keeps the progress of this user.
func (p Progress) Write() error {
	file, err := progressFile()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	next := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return errors.Join(os.Rename(next, file))
}
