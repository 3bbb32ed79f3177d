#!/usr/bin/perl
# The dynamic pages of the Apache stack.
use strict;
use warnings;
use Time::HiRes qw(sleep time);

my $text = "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n" x 60;
my ($path) = $ENV{REQUEST_URI} =~ m{^([^?]*)};
my ($seconds) = $ENV{QUERY_STRING} =~ /seconds=([\d.]+)/;
binmode STDIN;

sub cookie {
    my $name = shift;
    return ($ENV{HTTP_COOKIE} // "") =~ /(?:^|;\s*)\Q$name\E=([^;]*)/ ? $1 : undef;
}

sub answer {
    my ($body, @fields) = @_;
    print "Content-Type: text/html; charset=utf-8\r\n", map({ "$_\r\n" } @fields), "\r\n", $body;
    exit;
}

my $user = cookie("session") // "nobody";
my $account = "<h1>user=$user</h1>\n$text";
my $page = "<h1>page</h1>\n$text";
my $minute = "Cache-Control: public, max-age=60";

answer($page, $minute) if $path eq "/page";
answer($account) if $path eq "/account";
if ($path eq "/language") {
    my $language = ($ENV{HTTP_ACCEPT_LANGUAGE} // "") =~ /^de/ ? "de" : "en";
    answer("<h1>language=$language</h1>\n$text", $minute, "Vary: Accept-Language", "Content-Language: $language");
}
if ($path eq "/login") {
    my $form = do { local $/; <STDIN> } // "";
    my ($name) = $form =~ /^user=(\w+)/;
    answer("", "Status: 303", "Location: /account", "Set-Cookie: session=" . ($name // "nobody") . "; Path=/; HttpOnly");
}
if ($path eq "/account/expired") {
    sleep(0.7);
    answer($account, "Cache-Control: max-age=0");
}
if ($path eq "/form") {
    my $token = cookie("visitor");
    answer("<input value='token=$token'>\n$text", $minute) if defined $token;
    $token = sprintf("%08x%08x", rand(2**32), rand(2**32));
    answer("<input value='token=$token'>\n$text", $minute, "Set-Cookie: visitor=$token; Path=/");
}
if ($path =~ m{^/until/(\d+)}) {
    answer("<h1>not here</h1>\n", "Status: 404") if time() >= $1;
    answer("<h1>still here</h1>\n$text", "Cache-Control: public, max-age=1");
}
if ($path eq "/slow") {
    sleep($seconds);
    answer($page, $minute);
}
if ($path eq "/report") {
    sleep($seconds);
    answer($account, "Cache-Control: no-store");
}
if ($path eq "/echo") {
    my $body = do { local $/; <STDIN> } // "";
    my $sum = length($body) ? unpack("%32C*", $body) : 0;
    answer(sprintf("method=%s length=%d sum=%d\n", $ENV{REQUEST_METHOD}, length($body), $sum), "Cache-Control: no-store");
}
answer("<h1>error</h1>\n", "Status: 500");
