<?php
/*
 * Plugin Name: Stand
 * Description: The pages of the stand, served inside WordPress: with its users, its cookies and its headers.
 */

define('STAND_PATH', parse_url($_SERVER['REQUEST_URI'] ?? '/', PHP_URL_PATH));
define('STAND_TEXT', str_repeat(
    "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n", 60));

function stand_is_ours() {
    return preg_match('#^/(page|article|language|login|account|account/expired|form|until/\d+|gone|forbidden|error'
        . '|old|slow|report|echo)$#', STAND_PATH) === 1;
}

/** WordPress shows its front page, until template_redirect. */
add_filter('do_parse_request', fn ($parse) => stand_is_ours() ? false : $parse);
remove_action('template_redirect', 'redirect_canonical');
add_action('template_redirect', function () {
    if (stand_is_ours()) {
        stand_answer(STAND_PATH);
        exit;
    }
});

function stand_html($heading, $lifetime = null) {
    if ($lifetime !== null) {
        header("Cache-Control: $lifetime");
        header_remove('Expires');
    }
    echo $heading, "\n", STAND_TEXT;
}

function stand_account($lifetime = null) {
    $user = wp_get_current_user();
    stand_html('<h1>user=' . ($user->exists() ? $user->user_login : 'nobody') . '</h1>', $lifetime);
}

function stand_login() {
    $name = sanitize_user($_POST['user'] ?? '');
    wp_signon(['user_login' => $name, 'user_password' => "secret of $name"], false);
    wp_safe_redirect('/account', 303);
}

function stand_language() {
    $language = str_starts_with($_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? '', 'de') ? 'de' : 'en';
    header('Vary: Accept-Language', false);
    header("Content-Language: $language");
    stand_html("<h1>language=$language</h1>", 'public, max-age=60');
}

function stand_form() {
    $token = $_COOKIE['visitor'] ?? null;
    if ($token === null) {
        $token = bin2hex(random_bytes(8));
        setcookie('visitor', $token, 0, '/');
    }
    stand_html("<input value='token=$token'>", 'public, max-age=60');
}

function stand_until($moment) {
    if (time() >= $moment) {
        $GLOBALS['wp_query']->set_404();
        status_header(404);
        nocache_headers();
        stand_html('<h1>not here</h1>');
    } else {
        stand_html('<h1>still here</h1>', 'public, max-age=1');
    }
}

function stand_echo() {
    $body = file_get_contents('php://input');
    $sum = 0;
    foreach (count_chars($body, 1) as $byte => $count) {
        $sum += $byte * $count;
    }
    header('Cache-Control: no-store');
    printf("method=%s length=%d sum=%d\n", $_SERVER['REQUEST_METHOD'], strlen($body), $sum % 2 ** 32);
}

function stand_answer($path) {
    $seconds = (int) (($_GET['seconds'] ?? 0) * 1_000_000);
    switch ($path) {
        case '/page':
            return stand_html('<h1>page</h1>', 'public, max-age=60');
        case '/article':
            return stand_html('<h1>article</h1>', 'public, max-age=1');
        case '/language':
            return stand_language();
        case '/login':
            return stand_login();
        case '/account':
            return stand_account();
        case '/account/expired':
            usleep(700_000);
            return stand_account('max-age=0');
        case '/form':
            return stand_form();
        case '/gone':
            return status_header(410);
        case '/forbidden':
            return wp_die('forbidden', '', 403);
        case '/error':
            throw new RuntimeException('an error of the application');
        case '/old':
            return wp_safe_redirect('/page', 302);
        case '/slow':
            usleep($seconds);
            return stand_html('<h1>page</h1>', 'public, max-age=60');
        case '/report':
            usleep($seconds);
            return stand_account('no-store');
        case '/echo':
            return stand_echo();
        default:
            return stand_until((int) substr($path, strlen('/until/')));
    }
}
