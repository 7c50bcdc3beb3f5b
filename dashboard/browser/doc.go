// Package browser has the tests of package dashboard in headless Chromium: each page and each action, on a phone and on
// a wide screen, light and dark, with and without scripts, by mouse and by keyboard. It is a module of its own, so that
// programs with a dashboard do not get what only these tests need.
package browser
