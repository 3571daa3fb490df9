package exec

import (
	"fmt"
	"strings"
)

// Split cuts a command line into words as a POSIX shell does: at blanks, which quotes and backslashes protect. A template
// action is never cut, whatever blanks it holds. Nothing else of a shell works here, because none is run: what a shell
// would act upon, outside of single quotes, is an error instead of a surprise.
func Split(line string) ([]string, error) {
	s := splitter{rest: line}
	for s.rest != "" {
		if err := s.next(); err != nil {
			return nil, fmt.Errorf("command %q: %w", line, err)
		}
	}
	s.endWord()
	if len(s.words) == 0 {
		return nil, fmt.Errorf("command %q: it is empty", line)
	}
	return s.words, nil
}

type splitter struct {
	rest   string
	words  []string
	word   strings.Builder
	inWord bool // a word has begun; it may be empty, as '' is
}

// next takes the next piece: a blank, a quoted string, an action or a character.
func (s *splitter) next() error {
	switch c := s.rest[0]; c {
	case ' ', '\t', '\n':
		s.endWord()
		s.rest = s.rest[1:]
		return nil
	case '\'':
		return s.quoted('\'')
	case '"':
		return s.quoted('"')
	default:
		return s.plain()
	}
}

func (s *splitter) endWord() {
	if s.inWord {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.inWord = false
}

// take moves the first n bytes of the rest into the word.
func (s *splitter) take(n int) {
	s.inWord = true
	s.word.WriteString(s.rest[:n])
	s.rest = s.rest[n:]
}

// plain takes what stands outside of quotes.
func (s *splitter) plain() error {
	if n, err := s.action(); n > 0 || err != nil {
		s.take(n)
		return err
	}
	switch c := s.rest[0]; {
	case c == '\\':
		if len(s.rest) == 1 {
			return fmt.Errorf("it ends in a backslash")
		}
		s.rest = s.rest[1:]
	case strings.IndexByte("|&;<>()$`*?[", c) >= 0, !s.inWord && (c == '#' || c == '~'):
		return shellError(c)
	}
	s.take(1)
	return nil
}

// quoted takes a quoted string.
func (s *splitter) quoted(quote byte) error {
	s.rest = s.rest[1:]
	s.inWord = true
	for s.rest != "" {
		if n, err := s.action(); n > 0 || err != nil {
			if err != nil {
				return err
			}
			s.take(n)
			continue
		}
		switch c := s.rest[0]; {
		case c == quote:
			s.rest = s.rest[1:]
			return nil
		case quote == '"' && (c == '$' || c == '`'):
			return shellError(c)
		case quote == '"' && c == '\\' && len(s.rest) > 1 && strings.IndexByte("\"\\$`", s.rest[1]) >= 0:
			s.rest = s.rest[1:]
		}
		s.take(1)
	}
	return fmt.Errorf("the quote %c is not closed", quote)
}

// action is the length of the template action that the rest begins with, 0 if it begins with none.
func (s *splitter) action() (int, error) {
	if !strings.HasPrefix(s.rest, "{{") {
		return 0, nil
	}
	end := strings.Index(s.rest, "}}")
	if end < 0 {
		return 0, fmt.Errorf("{{ is not closed")
	}
	return end + len("}}"), nil
}

func shellError(c byte) error {
	return fmt.Errorf("no shell runs it, and %q would need one: quote it, or write sh -c '...'", string(c))
}
